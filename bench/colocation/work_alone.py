"""Turns the runs of hp alone and of be alone into the inputs of `orion.simulation.gpu`.

The run of be alone shows how fast be is at full clock: its first steps run before the GPU reaches its power limit. The
rest of the run shows be's speed at the power limit. The ratio of the two speeds gives be's power: the GPU lowers its
clock until the power equals the limit.
"""

from typing import Any

import numpy as np

from orion.bench.colocation import rates
from orion.bench.colocation.run_files import BestEffort, Run, RunFolder, Workload
from orion.simulation.gpu.costs import Costs
from orion.simulation.gpu.gate import BestEffort as BestEffortWork
from orion.simulation.gpu.gate import HighPriority

KERNEL_UNITS = ("products", "passes", "kernels")
"""Units of workloads of which each unit is one kernel, and whose steps wait for the GPU."""
FULL_CLOCK_S = 0.035
"""The clock stays full for so long after a rest; orion.simulation.gpu.clock."""
QUEUED_S = (0.06, 0.4)
"""A training loop runs ahead of the GPU at first. Its steps in this span show the speed before the power limit acts."""
THROTTLES = 1.005  # a smaller ratio is noise
LONGEST_STALL_MS = 1e6
MOST_IDLE = 0.99


def high_priority(alone: Run, costs: Costs) -> HighPriority | None:
    """Return hp alone; None if the run does not say which workload it measured."""
    if alone.hp is None:
        return None
    work = costs.work_of(alone.hp.workload, alone.hp.facts)
    power = work.power_w if work else costs.power_w_otherwise
    sensitivity = work.clock_sensitivity if work and work.clock_sensitivity else costs.sensitivity_otherwise
    arrivals, starts, ends = (1e3 * np.asarray(times) for times in (alone.arrivals, alone.starts, alone.ends))
    return HighPriority(arrivals, starts, ends, power, sensitivity)


def stall_ms(trainer: Workload) -> float:
    """Return how long each iteration waits for input; 0 if it does not wait."""
    stall = trainer.facts.get("stall_ms", 0.0)
    return float(stall) if isinstance(stall, int | float) and 0 <= stall < LONGEST_STALL_MS else 0.0


class BestEffortAlone:
    """be alone in the rounds of one hp."""

    def __init__(self, folder: RunFolder, hp: str, solos: rates.Solos, costs: Costs) -> None:
        """Read the runs of be alone."""
        self._solos, self._costs = solos, costs
        self._clients: dict[tuple[int, str], BestEffort] = {}
        for path in folder.be_alone(hp):
            run = folder.load(path)
            if run is not None and len(run.be) == 1:
                self._clients[run.round, run.be[0].work_key] = run.be[0]

    def refusal(self, work_key: str) -> str | None:
        """Return why nothing can be said about a be workload; None if it was measured alone."""
        known = any(key == work_key and (number, key) in self._solos for number, key in self._clients)
        return None if known else "be alone is missing in the rounds of hp alone"

    def of(self, number: int, work_key: str, clients: int) -> BestEffortWork | None:
        """Return be in a round, as so many equal clients; None if be alone was not measured in the round."""
        client, solo = self._clients.get((number, work_key)), self._solos.get((number, work_key))
        if client is None or solo is None:
            return None
        work = self._costs.work_of(client.workload, client.facts)
        in_kernels = client.about.get("unit") in KERNEL_UNITS
        kept_up_ms = 1e3 * client.amount / solo.rate
        full_ms = _full_clock_ms(client, in_kernels) or kept_up_ms
        throttled = max(1.0, kept_up_ms / full_ms)
        limit, exponent = self._costs.power.limit_w.value, self._costs.power.exponent.value
        power = work.power_w if work else self._costs.power_w_otherwise
        if throttled > THROTTLES:
            power = limit * throttled**exponent
        return BestEffortWork(
            throttled=throttled,
            power_w=min(power, limit * throttled**exponent),
            kernel_ms=min(full_ms, kept_up_ms) / client.amount if in_kernels else None,
            rest_ms=(work.rest_ms if work else ()) or self._costs.rest_otherwise_ms,
            ends_by_time=client.facts.get("counts") == "elapsed",
            clients=clients,
            idle=min(MOST_IDLE, stall_ms(client) / kept_up_ms),
        )


def _full_clock_ms(client: BestEffort, in_kernels: bool) -> float | None:
    """Return the median step at full clock; None if the run has too few such steps."""
    ends = np.asarray(client.ends)
    steps = 1e3 * np.diff(ends)
    low, high = (0.0, FULL_CLOCK_S) if in_kernels else QUEUED_S
    begins: Any = ends[:-1]
    chosen = steps[(begins >= low) & (ends[1:] <= high)]
    return float(np.median(chosen)) or None if len(chosen) >= 2 else None
