"""Chooses the next unit (one round of one hp) of each GPU, and predicts how long all units take.

A GPU takes a unit with the highest `priority`. So if the measurement is interrupted, the most important units are
complete. Among units of equal priority, the list chooses by these rules, in this order:

1. a unit of the GPU's last hp, because the processes of that hp are already running;
2. a unit of the hp that was chosen least often, so that each hp gets a first round early;
3. the longest unit, so that all GPUs end at about the same time.

While a process starts, no run is in progress on any GPU of the host (see `phase_lock`). So each GPU reserves its next
unit early, and starts that unit's processes while other GPUs start theirs. A GPU that runs out of work takes a unit
that another GPU reserved.
"""

import threading
from collections.abc import Callable, Sequence

from orion.bench.colocation.plan import Unit

START_SECONDS = 15.0
"""About how long an hp and its be entries take to start at the same time, on a machine with an H200."""


class WorkList:
    """The waiting units; thread-safe."""

    def __init__(self, units: Sequence[Unit], seconds: Callable[[Unit], float]) -> None:
        """Args: seconds returns the expected duration of a unit, without the start of processes."""
        self._waiting = list(units)
        self._seconds = seconds
        self._lock = threading.Lock()
        self._reserved: dict[int, Unit] = {}
        self._last_hp: dict[int, str] = {}
        self._times_chosen: dict[str, int] = {}

    def take(self, gpu: int) -> Unit | None:
        """Return the next unit of a GPU; None if no unit is left."""
        with self._lock:
            unit = self._reserved.pop(gpu, None) or self._choose(gpu)
            if unit is None and self._reserved:
                unit = self._reserved.pop(max(self._reserved, key=lambda each: self._worth(self._reserved[each], None)))
            if unit is not None:
                self._last_hp[gpu] = unit.hp_id
            return unit

    def reserve(self, gpu: int) -> Unit | None:
        """Reserve and return the GPU's next unit; None if no unit waits. Another GPU without work may still take it."""
        with self._lock:
            if gpu not in self._reserved and (unit := self._choose(gpu)) is not None:
                self._reserved[gpu] = unit
            return self._reserved.get(gpu)

    def _choose(self, gpu: int) -> Unit | None:
        if not self._waiting:
            return None
        unit = max(self._waiting, key=lambda each: self._worth(each, self._last_hp.get(gpu)))
        self._waiting.remove(unit)
        self._times_chosen[unit.hp_id] = self._times_chosen.get(unit.hp_id, 0) + 1
        return unit

    def _worth(self, unit: Unit, had: str | None) -> tuple[int, bool, int, float]:
        return unit.priority, unit.hp_id == had, -self._times_chosen.get(unit.hp_id, 0), self._seconds(unit)


def expected_seconds(
    units: Sequence[Unit], seconds: Callable[[Unit], float], longest: Callable[[Unit], float], gpus: int
) -> float:
    """Return the expected duration of all units on `gpus` GPUs, in seconds, including starts of processes.

    A GPU that has to start processes waits until the other GPUs have ended their current runs. This takes half of the
    longest run on average. Then all GPUs wait for the start. Meanwhile each GPU starts the processes of its next unit,
    too; the estimate assumes that GPU memory suffices for the processes of two units.

    Args:
        units: All units; a unit of 0 seconds is already measured.
        seconds: Returns the duration of a unit, without the start of processes.
        longest: Returns the duration of a unit's longest run.
        gpus: Number of GPUs.
    """
    units = [unit for unit in units if seconds(unit) > 0]
    work = WorkList(units, seconds)
    ends: dict[int, float] = dict.fromkeys(range(gpus), 0.0)
    had: dict[int, Unit | None] = dict.fromkeys(ends)
    ready: set[int] = set()
    finished = 0.0
    while ends:
        gpu = min(ends, key=lambda each: ends[each])
        before, unit = had[gpu], work.take(gpu)
        if unit is None:
            finished = max(finished, ends.pop(gpu))
            continue
        if (before is None or before.hp_id != unit.hp_id) and gpu not in ready:
            others = [each for each in ends if each != gpu]
            wait = max((longest(other) / 2 for each in others if (other := had[each])), default=0.0)
            for each in ends:
                ends[each] += wait + START_SECONDS
            ready = set(ends)
        ready.discard(gpu)
        had[gpu] = unit
        ends[gpu] += seconds(unit)
    return finished
