"""The interface of a workload, which runs steps on the GPU, and of its trace, which records when the GPU ran them.

A workload does not know its role, the hook or other processes: the same code runs in every system that is compared.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

Span = tuple[float, float]


@dataclass(frozen=True)
class Place:
    """Which stream a workload uses. The default: the workload is alone in its process."""

    one_of_several: bool = False
    """Other threads of the process use the GPU, too: the workload uses one stream, and waits for this stream only."""
    stream: Callable[[], int] | None = None
    """Returns the CUstream to use, in a thread with a current context; None: the workload chooses its stream."""


class Trace(Protocol):
    """Records the spans in which the GPU worked for this process."""

    on: bool
    """Whether launches are recorded now."""

    def anchor(self, finish: Callable[[], None]) -> None:
        """Relate the GPU's clock to CLOCK_MONOTONIC; the stream is idle, and `finish` waits for the stream."""

    def mark(self) -> None:
        """Record that the previous launch call returned now."""

    def spans(self) -> list[Span]:
        """Return (begin, end) of each piece of work in CLOCK_MONOTONIC seconds; all work has to be complete."""
        ...


class NoTrace:
    """A trace that records nothing."""

    on = False

    def anchor(self, finish: Callable[[], None]) -> None:
        """Do nothing."""

    def mark(self) -> None:
        """Do nothing."""

    def spans(self) -> list[Span]:
        """Return an empty list."""
        return []


class EventTrace:
    """A trace that uses CUDA events; it records nothing while `on` is false.

    Call `mark` after each launch. A piece of work ends at its event. It begins when the previous piece ends or, if the
    GPU was idle in between, when the launch call returned. The gate delays the launch call, so a span does not include
    the wait at the gate.
    """

    def __init__(self, record: Callable[[], Any], seconds_between: Callable[[Any, Any], float]) -> None:
        """Create a trace that is off.

        Args:
            record: Records an event on the workload's stream and returns the event.
            seconds_between: Returns the seconds from one completed event to another.
        """
        self._record = record
        self._seconds_between = seconds_between
        self._marks: list[tuple[float, Any]] = []
        self._anchor: tuple[float, Any] | None = None
        self.on = False

    def anchor(self, finish: Callable[[], None]) -> None:
        """Relate the GPU's clock to CLOCK_MONOTONIC; the stream is idle, and `finish` waits for the stream."""
        best: tuple[float, float, Any] | None = None
        for _ in range(5):
            finish()
            before = time.monotonic()
            event = self._record()
            finish()
            after = time.monotonic()
            if best is None or after - before < best[0]:
                best = (after - before, after, event)
        assert best is not None
        self._anchor = (best[1], best[2])

    def mark(self) -> None:
        """Record that the previous launch call returned now."""
        if self.on:
            launched = time.monotonic()
            self._marks.append((launched, self._record()))

    def spans(self) -> list[Span]:
        """Return (begin, end) of each piece of work in CLOCK_MONOTONIC seconds; all work has to be complete."""
        if self._anchor is None:
            return []
        zero, origin = self._anchor
        spans: list[Span] = []
        previous = 0.0
        for launched, event in self._marks:
            end = zero + self._seconds_between(origin, event)
            spans.append((min(max(previous, launched), end), end))
            previous = end
        self._marks.clear()
        return spans


class Workload(Protocol):
    """One kind of work; the constructor sets it up and warms it up."""

    unit: str
    """What a step processes: "requests", "images", ..."""
    amount: float
    """How many units a step processes."""
    gpu: str
    """The device's name."""
    details: dict[str, Any]
    """Facts for a reader of the raw data: precision, batch, calibration."""
    trace: Trace

    def step(self) -> None:
        """Serve one request and wait for it, or queue one training step and wait for an earlier step."""

    def finish(self) -> None:
        """Wait until all queued work has completed."""

    def throughout(self) -> AbstractContextManager[Any]:
        """Return the context in which the steps of a run are called; a null context by default."""
        return nullcontext()
