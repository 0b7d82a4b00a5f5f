"""Which round of which hp a GPU takes next, and how long all of them take.

What matters most first, as the scenario says it (`priority`): a measurement that is cut short has that. Among equals a
GPU stays with the hp that it had, whose processes are there already; else it takes an hp that the fewest had, so that
each has a round before one has all; and of those the longest, which lets all GPUs end at about the same time.

Starting processes idles all GPUs of the host (see `phase_lock`). So a GPU knows ahead what it takes next, and starts
the processes of that when others start theirs; what it has not begun when others have nothing left is theirs.
"""

import threading
from collections.abc import Callable, Sequence

from orion.bench.colocation.plan import Unit

START_SECONDS = 15.0
"""About what the processes of an hp and its neighbours take to start, all at once, on an H200's machine."""


class WorkList:
    """Units that wait; may be used by several threads."""

    def __init__(self, units: Sequence[Unit], seconds: Callable[[Unit], float]) -> None:
        """Args: seconds says about how long a unit takes, the start of processes left out."""
        self._waiting = list(units)
        self._seconds = seconds
        self._lock = threading.Lock()
        self._ahead: dict[int, Unit] = {}
        self._had: dict[int, str] = {}
        self._given: dict[str, int] = {}

    def take(self, gpu: int) -> Unit | None:
        """Return the next unit of a GPU; None if none is left."""
        with self._lock:
            unit = self._ahead.pop(gpu, None) or self._choose(gpu)
            if unit is None and self._ahead:
                unit = self._ahead.pop(max(self._ahead, key=lambda each: self._worth(self._ahead[each], None)))
            if unit is not None:
                self._had[gpu] = unit.hp_id
            return unit

    def ahead(self, gpu: int) -> Unit | None:
        """Return what a GPU will take next unless another runs out of work before; None if nothing waits."""
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
    """Return about how long so many GPUs take for all units, processes and all.

    A GPU that needs processes waits for the runs of the others, the longest of which has half of its time before it;
    all of them wait for the start, in which they start what they need next, too, as if there were memory for it.

    Args:
        units: All of them; those that take no time are there already.
        seconds: Of a unit, without the start of processes.
        longest: Of a unit, its longest run.
        gpus: How many.
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
