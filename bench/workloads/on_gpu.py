"""The base class of all torch workloads: GPU, stream, waits, trace, and the queue of incomplete steps.

All work goes to the current stream of the calling thread, which `throughout` sets. A workload that is alone in its
process uses the default stream and waits with `torch.cuda.synchronize`, like most programs. A workload that is one of
several threads uses a stream of its own and waits for this stream only.
"""

# mypy: disable-error-code="import-not-found, no-untyped-call"
import collections
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Generic, TypeVar

import torch

from orion.bench.workload import EventTrace, Place, Trace
from orion.bench.workloads import turns
from orion.bench.workloads.options import Options
from orion.bench.workloads.timing import UNFINISHED_STEPS, WARM_UP, step_milliseconds

OptionsT = TypeVar("OptionsT", bound=Options)

HIGHEST_PRIORITY = -100  # torch clamps it to the GPU's highest priority


class OnGPU(ABC, Generic[OptionsT]):
    """A workload on the first GPU; the constructor warms it up."""

    unit = "steps"
    amount = 1.0

    def __init__(self, options: OptionsT, place: Place) -> None:
        """Build, warm up, calibrate, measure the time of a step.

        Args:
            options: Options of this kind of workload.
            place: Which stream the workload uses.
        """
        torch.backends.cudnn.benchmark = False  # its trials could choose another algorithm in each process
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.manual_seed(0)
        torch.cuda.synchronize()  # makes the GPU's context current in this thread
        self.gpu: str = torch.cuda.get_device_name()
        self.details: dict[str, Any] = {"torch": str(torch.__version__), **options.model_dump(exclude_none=True)}
        self._options = options
        self._place = place
        self._stream = _make_stream(options, place)
        self._wait: Callable[[], None] = torch.cuda.synchronize
        if place.one_of_several:
            self._wait = self._stream.synchronize
        self.trace: Trace = EventTrace(self._record, lambda begin, end: float(begin.elapsed_time(end)) / 1e3)
        self._queued: collections.deque[Any] = collections.deque()
        with turns.building():
            with torch.cuda.stream(self._stream), torch.device("cuda"):
                self._build(options)
            with self.throughout():
                self._warm_up()
                for _ in range(WARM_UP):
                    self.step()
                self._wait()
        with turns.timing(), self.throughout():
            self._calibrate()
            self.details["step_ms"] = round(self._milliseconds(), 3)

    @abstractmethod
    def _build(self, options: OptionsT) -> None:
        """Create parameters and inputs; new tensors are on the GPU by default."""

    def _warm_up(self) -> None:
        """Prepare for `step`, in the context of `throughout`; does nothing by default."""

    def _calibrate(self) -> None:
        """Set values that depend on measured times, while no other workload uses the GPU; does nothing by default."""

    @abstractmethod
    def step(self) -> None:
        """Do one step."""

    def finish(self) -> None:
        """Wait until all queued work has completed."""
        self._wait()

    @contextmanager
    def throughout(self) -> Iterator[None]:
        """Set the context for a run of steps: the stream, and the modes of torch that the workload needs."""
        with torch.cuda.stream(self._stream), self._mode():
            yield

    def _mode(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def _record(self) -> Any:
        """Record a timing event on the workload's stream, inside or outside of `throughout`."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(self._stream or torch.cuda.current_stream())
        return event

    def _queue_step(self) -> None:
        """Wait until at most `UNFINISHED_STEPS` steps are incomplete."""
        event = torch.cuda.Event()
        event.record()
        self._queued.append(event)
        if len(self._queued) > UNFINISHED_STEPS:
            self._queued.popleft().synchronize()

    def _milliseconds(self) -> float:
        """Return the mean time of a step."""
        return step_milliseconds(self.step, self._wait)


def _make_stream(options: Options, place: Place) -> Any:
    """Return the workload's stream; None: the default stream, only for a workload that is alone in its process."""
    if place.stream is not None:
        return torch.cuda.ExternalStream(place.stream())
    if options.stream_priority == "high":
        return torch.cuda.Stream(priority=HIGHEST_PRIORITY)
    return torch.cuda.Stream() if place.one_of_several else None
