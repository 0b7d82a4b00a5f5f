"""Stand-ins for the real models on the simulated GPU: kernels that are a duration and a number of SMs.

The driver is called through NVIDIA's own Python bindings, as on a GPU, so the hook sees an ordinary CUDA program.
Python's work between two launches is kept small: on two cores it would be the noise that the demo measures.
"""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from cuda.bindings import driver

from orion.bench.workload import NoTrace, Span, Trace, Workload

DEFAULT_STREAM = 0
DRAIN_SECONDS = 0.1  # the driver appends to its timeline every 20 ms


class DriverError(RuntimeError):
    """A driver call failed; the text holds its number."""


def checked(answer: tuple[Any, ...]) -> Any:
    """Return what a binding answered beside its status, or raise."""
    if answer[0] != driver.CUresult.CUDA_SUCCESS:
        raise DriverError(f"the driver answered {answer[0]!r}")
    return answer[1] if len(answer) > 1 else None


class DeviceTimeline:
    """What the simulated GPU itself writes down: who had it when, to the nanosecond, slices and all."""

    def __init__(self, path: Path) -> None:
        """Args: path is where the driver appends `process begin_ns end_ns what`, one line a piece."""
        self._path = path
        self.on = False

    def anchor(self, finish: Callable[[], None]) -> None:
        """Do nothing: the device's clock is CLOCK_MONOTONIC."""

    def mark(self) -> None:
        """Do nothing: the device sees each launch."""

    def spans(self) -> list[Span]:
        """Return (begin, end) of each piece in CLOCK_MONOTONIC seconds."""
        time.sleep(DRAIN_SECONDS)
        pieces = (line.split(maxsplit=3) for line in self._path.read_text().splitlines())
        return [(int(begin) / 1e9, int(end) / 1e9) for _, begin, end, _ in pieces]


class _Kernels:
    """Launches one kernel several times and synchronises; both kinds below are that, with other numbers."""

    amount = 1.0

    def __init__(self, kernel_us: int, kernels: int, sms: int, timeline: str | None) -> None:
        self.trace: Trace = NoTrace()
        if timeline:
            os.environ["ORION_SIM_TRACE"] = timeline  # read by the driver when it is initialised
            self.trace = DeviceTimeline(Path(timeline))
        checked(driver.cuInit(0))
        device = checked(driver.cuDeviceGet(0))
        checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(device))))
        image = f"orion-sim 1\nkernel work duration_us={kernel_us} sms={sms} params=\n".encode() + b"\0"
        module = checked(driver.cuModuleLoadData(image))
        self._kernel = checked(driver.cuModuleGetFunction(module, b"work"))
        self._kernels = kernels
        self.gpu = checked(driver.cuDeviceGetName(64, device)).split(b"\0")[0].decode()
        self.details: dict[str, Any] = {"kernel_us": kernel_us, "kernels": kernels, "sms": sms}
        self.details["step_ms"] = kernel_us * kernels / 1e3
        for _ in range(3):
            self.step()

    def step(self) -> None:
        launch, kernel = driver.cuLaunchKernel, self._kernel
        for _ in range(self._kernels):
            checked(launch(kernel, 1, 1, 1, 1, 1, 1, 0, DEFAULT_STREAM, 0, 0))
        checked(driver.cuStreamSynchronize(DEFAULT_STREAM))

    def finish(self) -> None:
        checked(driver.cuCtxSynchronize())

    def throughout(self) -> AbstractContextManager[Any]:
        return nullcontext()


class SimulatedInference(_Kernels):
    """A request of 4 ms that fills the GPU: eight kernels."""

    unit = "requests"

    def __init__(self, kernel_us: int = 500, kernels: int = 8, sms: int = 132, timeline: str | None = None) -> None:
        super().__init__(kernel_us, kernels, sms, timeline)


class SimulatedTraining(_Kernels):
    """A training step of 4 ms: twenty kernels, then the loss is read."""

    unit = "steps"

    def __init__(self, kernel_us: int = 200, kernels: int = 20, sms: int = 132, timeline: str | None = None) -> None:
        super().__init__(kernel_us, kernels, sms, timeline)


KINDS: dict[str, Callable[..., Workload]] = {
    "simulated-inference": SimulatedInference,
    "simulated-training": SimulatedTraining,
}
