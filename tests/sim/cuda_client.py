"""Shared by the scenarios: a device, kernels of a chosen duration, and a check of every call."""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver as cuda

IMAGE = b"""orion-sim 1
# a comment, and an empty line

kernel tiny duration_us=5 sms=1 params=
kernel gemm duration_us=1800 sms=132 params=8,8,4
kernel timed duration_us=@0 sms=@1 params=8,4   # as the launch says
kernel filled duration_us=@0 sms=grid params=8
kernel logged duration_us=@0 sms=@1 params=8,4,8,8 log=@2
kernel meeting duration_us=@0 sms=grid barrier=grid params=8
kernel named duration_us=@0 sms=132 params=8,16
"""
SM = cuda.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
RELAXED = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
THREAD_LOCAL = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
GLOBAL = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL


def ok(answer: tuple[Any, ...]) -> Any:
    """The values of a call that must succeed."""
    assert answer[0] == cuda.CUresult.CUDA_SUCCESS, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]


def fails(answer: tuple[Any, ...], error: str | int) -> None:
    """Assert that the call returned this error, given by name or number."""
    wanted = cuda.CUresult(error) if isinstance(error, int) else getattr(cuda.CUresult, f"CUDA_ERROR_{error}")
    assert answer[0] == wanted, f"{answer[0]!r} instead of {wanted!r}"


class Device:
    """A GPU with its primary context current, and the kernels of IMAGE."""

    def __init__(self, ordinal: int = 0) -> None:
        ok(cuda.cuInit(0))
        self.device = ok(cuda.cuDeviceGet(ordinal))
        self.context = ok(cuda.cuDevicePrimaryCtxRetain(self.device))
        ok(cuda.cuCtxSetCurrent(self.context))
        self.module = ok(cuda.cuModuleLoadData(IMAGE))
        self.tiny = ok(cuda.cuModuleGetFunction(self.module, b"tiny"))
        self.gemm = ok(cuda.cuModuleGetFunction(self.module, b"gemm"))
        self.timed = ok(cuda.cuModuleGetFunction(self.module, b"timed"))
        self.filled = ok(cuda.cuModuleGetFunction(self.module, b"filled"))
        self.logged = ok(cuda.cuModuleGetFunction(self.module, b"logged"))
        self.meeting = ok(cuda.cuModuleGetFunction(self.module, b"meeting"))
        self.named = ok(cuda.cuModuleGetFunction(self.module, b"named"))
        for kernel in (self.tiny, self.gemm, self.timed, self.filled, self.logged, self.meeting, self.named):
            ok(cuda.cuFuncLoad(kernel))  # else its first launch would wait for all work of the context

    def stream(self, flags: int = 1, priority: int = 0) -> Any:
        """A stream, non-blocking by default."""
        return ok(cuda.cuStreamCreateWithPriority(flags, priority))

    def green(self, sms: int, group: int = 0) -> Any:
        """A green context over the SMs of one of the groups into which the device is split."""
        everything = ok(cuda.cuDeviceGetDevResource(self.device, SM))
        groups = ok(cuda.cuDevSmResourceSplitByCount(group + 1, everything, 0, sms))[0]
        described = ok(cuda.cuDevResourceGenerateDesc([groups[group]], 1))
        return ok(cuda.cuGreenCtxCreate(described, self.device, 1))

    def green_stream(self, sms: int, group: int = 0, priority: int = 0) -> Any:
        """A stream of a new green context."""
        return ok(cuda.cuGreenCtxStreamCreate(self.green(sms, group), 1, priority))

    def launch(self, stream: Any, microseconds: int, sms: int = 132) -> None:
        """Launch a kernel that takes this long on this many SMs."""
        ok(self.try_launch(stream, microseconds, sms))

    def try_launch(self, stream: Any, microseconds: int, sms: int = 132) -> tuple[Any, ...]:
        """Launch such a kernel, and return the driver's answer."""
        parameters = ((microseconds, sms), (ctypes.c_uint64, ctypes.c_uint32))
        answer: tuple[Any, ...] = cuda.cuLaunchKernel(self.timed, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0)
        return answer

    def launch_with(self, stream: Any, microseconds: int, *addresses: int) -> None:
        """Launch a kernel that takes this long on all SMs, and a structure of two addresses with it."""
        words, structure = ctypes.c_uint64(microseconds), (ctypes.c_uint64 * 2)(*addresses)
        parameters = (ctypes.c_void_p * 2)(ctypes.addressof(words), ctypes.addressof(structure))
        pointer = ctypes.addressof(parameters)
        ok(cuda.cuLaunchKernel(self.named, 1, 1, 1, 1, 1, 1, 0, stream, pointer, 0))

    def mark(self, stream: Any) -> Any:
        """Record a timing event now."""
        event = ok(cuda.cuEventCreate(0))
        ok(cuda.cuEventRecord(event, stream))
        return event

    def between(self, start: Any, end: Any) -> float:
        """Microseconds between two events, after waiting for them."""
        ok(cuda.cuEventSynchronize(start))
        ok(cuda.cuEventSynchronize(end))
        return float(ok(cuda.cuEventElapsedTime(start, end))) * 1000


def main(scenarios: dict[str, Any]) -> None:
    """Run the scenario that the command line names."""
    scenario: Callable[..., None] = scenarios[sys.argv[1]]
    scenario(*sys.argv[2:])
