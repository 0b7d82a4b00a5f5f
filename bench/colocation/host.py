"""State that the runners of all GPUs share: phases of runs and of process starts, and a record of disturbances.

A disturbance is something that happens on another GPU of the host during a run; each run file lists its disturbances.
No process starts or ends by plan during a measurement, because phases separate the two. So the list is normally empty.
It can contain only unplanned events, such as the failure of a process on another GPU.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from orion.bench.colocation.phase_lock import PhaseLock


@dataclass
class _Event:
    gpu: int
    what: str
    began: float
    """Seconds of CLOCK_MONOTONIC."""
    ended: float | None
    """None: not ended yet."""


class Host:
    """The phases and the record of disturbances of one host; the threads of all GPUs share this object."""

    def __init__(self, tick: Callable[[], None] = lambda: None) -> None:
        """Args: tick is called ten times a second while a GPU waits; an exception from tick ends the wait."""
        self._phases = PhaseLock(tick)
        self._lock = threading.Lock()
        self._events: list[_Event] = []

    @contextlib.contextmanager
    def measuring(self, gpu: int) -> Iterator[None]:
        """Wait until no process starts or ends on any GPU; none starts or ends by plan until the context ends."""
        with self._phases.inside("measure", gpu):
            yield

    @contextlib.contextmanager
    def changing(self, gpu: int, what: str) -> Iterator[None]:
        """Wait until no run is in progress on any GPU; no run starts until the context ends.

        Use the context for starts and ends of processes and MPS daemons.
        """
        with self._phases.inside("change", gpu), self._recorded(gpu, what):
            yield

    @property
    def change_pending(self) -> bool:
        """Whether a GPU starts or ends processes, or waits to do so.

        If true, another GPU can start or end its processes in the same phase, at no further cost.
        """
        return self._phases.change_pending

    def note(self, gpu: int, what: str) -> None:
        """Record an unplanned event that happened now."""
        with self._recorded(gpu, what):
            pass

    def disturbances(self, since: float, begin: float) -> list[dict[str, Any]]:
        """Return the events that a run file has to list: those that ended after `since`, or have not ended yet.

        Args:
            since: Seconds of CLOCK_MONOTONIC.
            begin: Where the run file's times start, in seconds of CLOCK_MONOTONIC.

        Returns:
            For each event `gpu`, `what`, and `from` and `to` in seconds; `to` is None if the event has not ended.
        """
        with self._lock:
            found = [event for event in self._events if event.ended is None or event.ended >= since]
            return [
                {
                    "gpu": event.gpu,
                    "what": event.what,
                    "from": round(event.began - begin, 6),
                    "to": None if event.ended is None else round(event.ended - begin, 6),
                }
                for event in found
            ]

    @contextlib.contextmanager
    def _recorded(self, gpu: int, what: str) -> Iterator[None]:
        event = _Event(gpu, what, time.monotonic(), None)
        with self._lock:
            self._events.append(event)
        try:
            yield
        finally:
            event.ended = time.monotonic()
