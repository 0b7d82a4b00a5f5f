"""Workloads of the simulated GPU: each kernel is a duration and a number of SMs.

The hook sees an ordinary CUDA program. Python does little between two launches: on a machine with two cores, more
work would disturb the demo's measurements.
"""

import collections
import ctypes
import mmap
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from orion.bench.workload import NoTrace, Place, Span, Trace
from orion.bench.workloads import driver, ranks
from orion.bench.workloads import options as of
from orion.bench.workloads.driver import call, made
from orion.bench.workloads.graph_updates import GraphUpdates
from orion.errors import Unavailable

DEFAULT_STREAM = ctypes.c_void_p(0)
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
HIGHEST_PRIORITY = -100  # the driver clamps it to its highest priority
CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL = 0, 1  # CUstreamCaptureMode
UNFINISHED_STEPS = 2
COLLECTIVE_US = 200.0  # a step of several ranks ends with a collective of this length
DEVICE_MAP, AT_LEAST = 2, 0  # CU_MEMHOSTREGISTER_DEVICEMAP, CU_STREAM_WAIT_VALUE_GEQ
DRAIN_SECONDS = 0.1  # the driver appends to its timeline every 20 ms


class DeviceTimeline:
    """A trace that reads the simulated GPU's own record: when each process ran, with each time slice."""

    def __init__(self, path: Path) -> None:
        """Args: path is the file to which the simulated driver appends lines `process begin_ns end_ns what`."""
        self._path = path
        self.on = False

    def anchor(self, finish: Callable[[], None]) -> None:
        """Do nothing: the simulated GPU uses CLOCK_MONOTONIC."""

    def mark(self) -> None:
        """Do nothing: the simulated GPU sees each launch."""

    def spans(self) -> list[Span]:
        """Return (begin, end) of each piece in CLOCK_MONOTONIC seconds."""
        time.sleep(DRAIN_SECONDS)
        pieces = (line.split(maxsplit=3) for line in self._path.read_text().splitlines())
        return [(int(begin) / 1e9, int(end) / 1e9) for _, begin, end, _ in pieces]


class Simulated:
    """A step launches equal kernels. The options divide it into parts, and say how to launch and wait for a part."""

    unit = "requests"

    def __init__(self, options: of.Simulated, place: Place) -> None:
        """Load the kernel, capture the graph if the options ask for one, and run a few steps."""
        self.trace: Trace = NoTrace()
        if options.timeline:
            os.environ["ORION_SIM_TRACE"] = options.timeline  # cuInit reads it
            self.trace = DeviceTimeline(Path(options.timeline))
        self.gpu = _take_gpu(ranks.index())
        self.amount = options.amount
        self.details: dict[str, Any] = options.model_dump(exclude_none=True, exclude={"timeline", "amount"})
        self.details["step_ms"] = options.kernel_us * options.kernels / 1e3 + options.stall_ms
        self._one_of_several = place.one_of_several
        self._stream = _make_stream(options, place)
        self._parts = range(options.parts)
        self._kernels = range(options.kernels // options.parts)
        module = _load_module(options)
        self._kernel = made("cuModuleGetFunction", module, b"work")
        self._meeting = _Meeting(module, options.ranks) if options.ranks > 1 else None
        self._launch = self._captured(place, options.updated) if options.graph else self._launch_kernels
        self._waits, self._stall_seconds = not options.queued, options.stall_ms / 1e3
        self._queued: collections.deque[Any] = collections.deque()
        self._events = [made("cuEventCreate", NO_TIMING) for _ in range(UNFINISHED_STEPS + 1)]
        for _ in range(3):
            self.step()
        self.finish()

    def step(self) -> None:
        """Run the parts of a step, then sleep for the stall."""
        for _ in self._parts:
            self._launch()
            if self._waits:
                call("cuStreamSynchronize", self._stream)
        if self._meeting is not None:
            self._meeting.launch(self._stream)
        if not self._waits:
            self._queue_step()
        if self._stall_seconds:
            self.finish()
            time.sleep(self._stall_seconds)

    def finish(self) -> None:
        """Wait for the stream or, if the workload is alone in its process, for the context."""
        if self._one_of_several:
            call("cuStreamSynchronize", self._stream)
        else:
            call("cuCtxSynchronize")

    def throughout(self) -> AbstractContextManager[Any]:
        """Return a null context: a run of steps needs none."""
        return nullcontext()

    def _launch_kernels(self) -> None:
        launch = driver.library().cuLaunchKernel
        arguments = (self._kernel, 1, 1, 1, 1, 1, 1, 0, self._stream, None, None)
        for _ in self._kernels:
            if status := launch(*arguments):
                raise Unavailable(f"cuLaunchKernel answered {status}")

    def _captured(self, place: Place, updated: bool) -> Callable[[], None]:
        """Capture a part as a graph; return a function that launches the graph, or first updates it."""
        mode = CAPTURE_THREAD_LOCAL if place.one_of_several else CAPTURE_GLOBAL
        stream = self._stream
        # The default stream cannot capture.
        self._stream = stream if stream.value else made("cuStreamCreate", NON_BLOCKING)
        call("cuStreamBeginCapture_v2", self._stream, mode)
        self._launch_kernels()
        graph = ctypes.c_void_p()
        call("cuStreamEndCapture", self._stream, ctypes.byref(graph))
        self._stream = stream
        executable = made("cuGraphInstantiateWithFlags", graph, ctypes.c_ulonglong(0))
        if not updated:
            return lambda: call("cuGraphLaunch", executable, stream)
        updates = GraphUpdates(graph, executable)

        def launch() -> None:
            updates.apply()
            call("cuGraphLaunch", executable, stream)

        return launch

    def _queue_step(self) -> None:
        """Wait until at most `UNFINISHED_STEPS` steps are incomplete."""
        event = self._events.pop()
        call("cuEventRecord", event, self._stream)
        self._queued.append(event)
        if len(self._queued) > UNFINISHED_STEPS:
            self._events.append(self._queued.popleft())
            call("cuEventSynchronize", self._events[-1])


class SimulatedTraining(Simulated):
    """The same workload, with another unit."""

    unit = "steps"


class _Meeting:
    """The collective at the end of a step of several ranks.

    A simulated kernel cannot run until its peers run. So after it, each stream waits until the streams of all ranks
    have come as far; a file that all ranks map has their words.
    """

    def __init__(self, module: ctypes.c_void_p, count: int) -> None:
        self._kernel = made("cuModuleGetFunction", module, b"ncclDevKernel_AllReduce")
        with open(ranks.shared_file(), "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        call("cuMemHostRegister_v2", ctypes.c_void_p(begin), ctypes.c_size_t(mmap.PAGESIZE), DEVICE_MAP)
        self._words = [ctypes.c_ulonglong(begin + 64 * rank) for rank in range(count)]
        self._done = 0

    def launch(self, stream: ctypes.c_void_p) -> None:
        """Launch the kernel, and let the stream wait for those of all other ranks."""
        call("cuLaunchKernel", self._kernel, 1, 1, 1, 1, 1, 1, 0, stream, None, None)
        self._done += 1
        done = ctypes.c_uint(self._done)
        call("cuStreamWriteValue32_v2", stream, self._words[ranks.index()], done, 0)
        for word in self._words:
            call("cuStreamWaitValue32_v2", stream, word, done, AT_LEAST)


def _take_gpu(index: int) -> str:
    """Initialise the driver, make the primary context of a GPU current; return the GPU's name."""
    device, name = ctypes.c_int(), ctypes.create_string_buffer(64)
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), index)
    call("cuCtxSetCurrent", made("cuDevicePrimaryCtxRetain", device))
    call("cuDeviceGetName", name, len(name), device)
    return name.value.decode()


def _make_stream(options: of.Simulated, place: Place) -> ctypes.c_void_p:
    if place.stream is not None:
        return ctypes.c_void_p(int(place.stream()))
    if options.stream_priority == "high" or place.one_of_several:
        priority = HIGHEST_PRIORITY if options.stream_priority == "high" else 0
        return made("cuStreamCreateWithPriority", NON_BLOCKING, priority)
    return DEFAULT_STREAM


def _load_module(options: of.Simulated) -> ctypes.c_void_p:
    work = f"kernel work duration_us={options.kernel_us:.3f} sms={options.sms} params="
    collective = f"kernel ncclDevKernel_AllReduce duration_us={COLLECTIVE_US:.3f} sms=20 params="
    return made("cuModuleLoadData", f"orion-sim 1\n{work}\n{collective}\n".encode())
