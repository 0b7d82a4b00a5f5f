"""What the GPUs of a host share: phases in which they measure or start processes, and a record of what happened when.

Every run file lists what the harness did elsewhere on the host while it was made. By the phases that is nothing; what
it can hold is a process of another GPU that ended by itself.
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
    """None: it goes on."""


class Host:
    """Shared by the threads of all GPUs."""

    def __init__(self, tick: Callable[[], None] = lambda: None) -> None:
        """Args: tick is called ten times a second while a GPU waits for others; what it raises ends the wait."""
        self._phases = PhaseLock(tick)
        self._lock = threading.Lock()
        self._events: list[_Event] = []

    @contextlib.contextmanager
    def measuring(self, gpu: int) -> Iterator[None]:
        """Wait until nothing starts or ends on any GPU, and keep it so."""
        with self._phases.inside("measure", gpu):
            yield

    @contextlib.contextmanager
    def changing(self, gpu: int, what: str) -> Iterator[None]:
        """Wait until nobody measures, and keep it so: for starts and ends of processes and MPS daemons."""
        with self._phases.inside("change", gpu), self._recorded(gpu, what):
            yield

    @property
    def change_wished(self) -> bool:
        """Whether some GPU changes something or waits for it; one more that does so too costs nobody time."""
        return self._phases.change_wished

    def note(self, gpu: int, what: str) -> None:
        """Record what happened now, without having been asked for."""
        with self._recorded(gpu, what):
            pass

    def disturbances(self, since: float, begin: float) -> list[dict[str, Any]]:
        """Return what happened since a moment, for a run file.

        Args:
            since: Seconds of CLOCK_MONOTONIC.
            begin: The moment that the file's times are relative to.

        Returns:
            `gpu`, `what`, and `from` and `to` in seconds; `to` is None for what goes on.
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
