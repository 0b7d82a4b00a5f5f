"""Which round of which hp a GPU takes next.

The longest waiting one, which lets all GPUs end at about the same time; but one of the hp that the GPU had before is
preferred by what its processes, which are there already, would take to start.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orion.bench.colocation.plan import Unit

START_SECONDS = 15.0
"""About what the processes of an hp and its neighbours take to start, all at once, on an H200's machine."""


@dataclass(frozen=True)
class Took:
    """What a GPU has before it."""

    unit: Unit
    fresh: bool
    """Whether this GPU has to start processes for it."""


class WorkList:
    """Units that wait; may be used by several threads."""

    def __init__(self, units: Sequence[Unit], seconds: Callable[[Unit], float]) -> None:
        """Args: seconds says about how long a unit takes, the start of processes left out."""
        self._waiting = list(units)
        self._seconds = seconds
        self._lock = threading.Lock()

    def take(self, before: str | None) -> Took | None:
        """Return the next unit of a GPU that had the hp `before`; None if none is left."""
        with self._lock:
            if not self._waiting:
                return None
            unit = max(self._waiting, key=lambda each: self._seconds(each) + START_SECONDS * (each.hp_id == before))
            self._waiting.remove(unit)
            return Took(unit, unit.hp_id != before)


def expected_seconds(units: Sequence[Unit], seconds: Callable[[Unit], float], gpus: int) -> float:
    """Return about how long so many GPUs take for all units, processes and all."""
    units = [unit for unit in units if seconds(unit) > 0]
    work = WorkList(units, seconds)
    ends: dict[int, float] = dict.fromkeys(range(gpus), 0.0)
    had: dict[int, str] = {}
    while True:
        gpu = min(ends, key=lambda each: ends[each])
        took = work.take(had.get(gpu))
        if took is None:
            return max(ends.values())
        ends[gpu] += seconds(took.unit) + START_SECONDS * took.fresh
        had[gpu] = took.unit.hp_id
