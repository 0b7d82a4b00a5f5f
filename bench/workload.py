"""What one process runs on the GPU, step by step, and how it remembers when the GPU worked for it.

A workload knows nothing of roles, hooks or other processes: the same code runs in every system that is compared.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

Span = tuple[float, float]


@dataclass(frozen=True)
class Place:
    """Where a workload's work goes: a process of its own, as a rule."""

    one_of_several: bool = False
    """Other threads of the process use the GPU too: work goes to one stream, and that is waited for, not the GPU."""
    stream: Callable[[], int] | None = None
    """Returns the CUstream to use, in a thread with a current context; None: one that the workload makes."""


class Trace(Protocol):
    """Spans in which the GPU worked for this process."""

    on: bool
    """Whether launches are recorded now."""

    def anchor(self, finish: Callable[[], None]) -> None:
        """Tie the GPU's clock to CLOCK_MONOTONIC on an idle stream, whose `finish` waits for it."""

    def mark(self) -> None:
        """Remember that the launch before this call returned now."""

    def spans(self) -> list[Span]:
        """Return (begin, end) of each piece in CLOCK_MONOTONIC seconds, once all of them have completed."""
        ...


class NoTrace:
    """Nothing is recorded."""

    on = False

    def anchor(self, finish: Callable[[], None]) -> None:
        """Do nothing."""

    def mark(self) -> None:
        """Do nothing."""

    def spans(self) -> list[Span]:
        """Return none."""
        return []


class EventTrace:
    """A trace made with events; nothing is recorded while it is off.

    Call `mark` after each launch. Piece i of the work ends at its event. It begins at the end of the piece before it
    or, where the GPU was idle in between, when the launch call returned: a launch that waits at the gate returns
    late, so that wait is no part of the span.
    """

    def __init__(self, record: Callable[[], Any], seconds_between: Callable[[Any, Any], float]) -> None:
        """Make a trace that is off.

        Args:
            record: Records an event on the stream of the work and returns it.
            seconds_between: Seconds from one completed event to another.
        """
        self._record = record
        self._seconds_between = seconds_between
        self._marks: list[tuple[float, Any]] = []
        self._anchor: tuple[float, Any] | None = None
        self.on = False

    def anchor(self, finish: Callable[[], None]) -> None:
        """Tie the GPU's clock to CLOCK_MONOTONIC on an idle stream, whose `finish` waits for it."""
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
        """Remember that the launch before this call returned now."""
        if self.on:
            launched = time.monotonic()
            self._marks.append((launched, self._record()))

    def spans(self) -> list[Span]:
        """Return (begin, end) of each piece in CLOCK_MONOTONIC seconds, once all of them have completed."""
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
    """One kind of work, set up and warm once it is constructed."""

    unit: str
    """What a step processes: "requests", "images", ..."""
    amount: float
    """How many of them a step processes."""
    gpu: str
    """The device's name."""
    details: dict[str, Any]
    """What a reader of the raw data should know: precision, batch, calibration."""
    trace: Trace

    def step(self) -> None:
        """Serve one request to its end, or queue one training step and wait for an earlier one."""

    def finish(self) -> None:
        """Wait until everything queued has completed."""

    def throughout(self) -> AbstractContextManager[Any]:
        """Return a context in which a run of steps goes on; a null context by default."""
        return nullcontext()
