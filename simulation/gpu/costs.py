"""The constants of one GPU model, each with its source. No constant comes from a measured pair of workloads.

Refused: constants fitted to pairs of hp and be, because they would predict only the pairs that they were fitted to.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A measured value."""

    value: float
    source: str
    """The document or the file of raw data that holds the measurement."""


@dataclass(frozen=True)
class Work:
    """What a workload does to the GPU while it has the GPU alone."""

    workload: str
    batch: int | None
    """None: the figures hold for any batch."""
    power_w: float
    """Power while the workload keeps the GPU busy, at full clock unless that exceeds the limit."""
    clock_sensitivity: float | None = None
    """How much longer the work takes for each 1 % that a matrix product takes longer, in percent; None: unknown."""
    rest_ms: tuple[tuple[float, float], ...] = ()
    """Quantiles (rank from 0 to 1, ms) of the time that the work on the GPU still takes when hp comes."""


@dataclass(frozen=True)
class PowerControl:
    """How the GPU keeps its power under the limit; powers are parts of the limit, speeds are parts of full speed."""

    limit_w: Figure
    idle_w: Figure
    memory_ms: Figure
    """Time constant of the average power that the controller looks at."""
    exponent: Figure
    """Power changes with the speed to this exponent."""
    gain_per_ms: Figure
    """Change of speed in a ms, for each part of the limit by which the average power misses the limit."""
    fastest_rise_per_ms: Figure
    fastest_drop_per_ms: Figure


@dataclass(frozen=True)
class Costs:
    """All constants of one GPU model."""

    gpu: str
    """The model's name, as the driver reports it."""
    to_hp_ms: Figure
    """From the end of be's last kernel to the begin of hp's first."""
    to_be_ms: Figure
    """From the end of hp's last kernel to the begin of be's first, without the linger."""
    linger_ms: Figure
    """How long the gate stays closed after hp's last kernel, at least."""
    slice_ms: Figure
    """How long the GPU lets one context run if another waits."""
    slice_switch_ms: Figure
    """From the end of one context's slice to the begin of the next."""
    power: PowerControl
    work: Sequence[Work]
    work_source: str
    power_w_otherwise: float
    """For a workload that is not in `work`: the median of those in `work`."""
    sensitivity_otherwise: float
    rest_otherwise_ms: tuple[tuple[float, float], ...]

    def work_of(self, workload: str, options: Mapping[str, object]) -> Work | None:
        """Return the row of a workload, of the batch whose ratio to the workload's batch is closest to 1."""
        rows = [row for row in self.work if row.workload == workload]
        batch = options.get("batch")
        if not rows or not isinstance(batch, int) or batch < 1:
            return rows[0] if rows else None
        return min(rows, key=lambda row: abs(math.log((row.batch or batch) / batch)))
