"""Chooses the next unit (one round of one hp) of each GPU, and predicts how long all units take.

A GPU takes a unit with the highest `priority`, so an interrupted measurement has the most important units. Among equal
priorities it prefers its last hp, whose processes are already running; then the hp that was given out least often, so
each hp gets a round before one gets all; then the longest unit, so all GPUs end at about the same time.

Starts of processes idle all GPUs of the host (see `phase_lock`). So each GPU reserves its next unit early, and starts
that unit's processes while other GPUs start theirs. A GPU that runs out of work takes a unit that another GPU reserved.
"""

import threading
from collections.abc import Callable, Sequence

from orion.bench.colocation.plan import Unit

START_SECONDS = 15.0
"""About how long the processes of an hp and its be entries take to start together, on a machine with an H200."""


class WorkList:
    """The waiting units; thread-safe."""

    def __init__(self, units: Sequence[Unit], seconds: Callable[[Unit], float]) -> None:
        """Args: seconds returns the expected duration of a unit, without the start of processes."""
        self._waiting = list(units)
        self._seconds = seconds
        self._lock = threading.Lock()
        self._ahead: dict[int, Unit] = {}
        self._had: dict[int, str] = {}
        self._given: dict[str, int] = {}

    def take(self, gpu: int) -> Unit | None:
        """Return the next unit of a GPU; None if no unit is left."""
        with self._lock:
            unit = self._ahead.pop(gpu, None) or self._choose(gpu)
            if unit is None and self._ahead:
                unit = self._ahead.pop(max(self._ahead, key=lambda each: self._worth(self._ahead[each], None)))
            if unit is not None:
                self._had[gpu] = unit.hp_id
            return unit

    def ahead(self, gpu: int) -> Unit | None:
        """Reserve and return the GPU's next unit; None if no unit waits. Another GPU without work may still take it."""
        with self._lock:
            if gpu not in self._ahead and (unit := self._choose(gpu)) is not None:
                self._ahead[gpu] = unit
            return self._ahead.get(gpu)

    def _choose(self, gpu: int) -> Unit | None:
        if not self._waiting:
            return None
        unit = max(self._waiting, key=lambda each: self._worth(each, self._had.get(gpu)))
        self._waiting.remove(unit)
        self._given[unit.hp_id] = self._given.get(unit.hp_id, 0) + 1
        return unit

    def _worth(self, unit: Unit, had: str | None) -> tuple[int, bool, int, float]:
        return unit.priority, unit.hp_id == had, -self._given.get(unit.hp_id, 0), self._seconds(unit)


def expected_seconds(
    units: Sequence[Unit], seconds: Callable[[Unit], float], longest: Callable[[Unit], float], gpus: int
) -> float:
    """Return the expected duration of all units on `gpus` GPUs, in seconds, including starts of processes.

    A GPU that needs processes waits for the current runs of the other GPUs: on average, half of the longest run. All
    GPUs wait for the start, and start the processes of their next units, too; the estimate assumes memory for them.

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
