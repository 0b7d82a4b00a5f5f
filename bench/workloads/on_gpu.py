"""What every torch workload shares: the GPU, its stream, how it waits, the trace, a queue of unfinished steps.

All work goes to the current stream of the calling thread, which `throughout` chooses. In a process of its own that is
the default stream and waiting is `torch.cuda.synchronize`, as people write it; as one of several threads it is a
stream of its own, and that alone is waited for.
"""

# mypy: disable-error-code="import-not-found, no-untyped-call"
import collections
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Generic, TypeVar

import torch

from orion.bench.workload import EventTrace, Place, Trace
from orion.bench.workloads import turns
from orion.bench.workloads.options import Options

OptionsT = TypeVar("OptionsT", bound=Options)

HIGHEST_PRIORITY = -100  # torch takes the nearest one that the GPU has
UNFINISHED_STEPS = 2  # a training loop runs ahead of the GPU, but not for ever
WARM_UP = 8  # steps: allocator, lazily loaded kernels, cuBLAS's and cuDNN's choices
REPETITIONS = 10


class OnGPU(ABC, Generic[OptionsT]):
    """A workload on the first GPU, warm once it is constructed."""

    unit = "steps"
    amount = 1.0

    def __init__(self, options: OptionsT, place: Place) -> None:
        """Build, warm up, measure.

        Args:
            options: Of this kind.
            place: Where the work goes.
        """
        torch.backends.cudnn.benchmark = False  # its trials would choose other algorithms in each process
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.manual_seed(0)
        torch.cuda.synchronize()  # the context is this thread's current one from here on
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
        """Make parameters and inputs; new tensors are on the GPU."""

    def _warm_up(self) -> None:
        """Prepare what `step` needs, in the context of a run; nothing by default."""

    def _calibrate(self) -> None:
        """Set what depends on measured times, while nobody else uses the GPU; nothing by default."""

    @abstractmethod
    def step(self) -> None:
        """Do one step."""

    def finish(self) -> None:
        """Wait until everything queued has completed."""
        self._wait()

    @contextmanager
    def throughout(self) -> Iterator[None]:
        """Offer the context of a run of steps: the stream, and the modes of torch that the kind needs."""
        with torch.cuda.stream(self._stream), self._mode():
            yield

    def _mode(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def _record(self) -> Any:
        """Record a timing event on the workload's stream, in `throughout` or not."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(self._stream or torch.cuda.current_stream())
        return event

    def _queue_step(self) -> None:
        """Wait for the step before the last ones."""
        event = torch.cuda.Event()
        event.record()
        self._queued.append(event)
        if len(self._queued) > UNFINISHED_STEPS:
            self._queued.popleft().synchronize()

    def _milliseconds(self) -> float:
        """Mean time of one of several steps, the queue and the clocks brought up before."""
        for _ in range(UNFINISHED_STEPS):
            self.step()
        self._wait()
        begin = time.monotonic()
        for _ in range(REPETITIONS):
            self.step()
        self._wait()
        return (time.monotonic() - begin) / REPETITIONS * 1e3


def _make_stream(options: Options, place: Place) -> Any:
    """Return the stream of the work; None is the default one, which only a process of its own may use."""
    if place.stream is not None:
        return torch.cuda.ExternalStream(place.stream())
    if options.stream_priority == "high":
        return torch.cuda.Stream(priority=HIGHEST_PRIORITY)
    return torch.cuda.Stream() if place.one_of_several else None
