"""Shared by the scenarios of checkpoints: the calls, what tools see of the GPU, and threads that wait in a call."""

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuda.bindings import driver as cuda

from tests.sim.cuda_client import fails, ok
from tests.waiting import eventually

MIB = 1 << 20
STATE = cuda.CUprocessState
ME = os.getpid()
DRIVER = ctypes.CDLL("libcuda.so.1")


def state() -> Any:
    return ok(cuda.cuCheckpointProcessGetState(ME))


def lock(timeout_ms: int = 0) -> tuple[Any, ...]:
    arguments = cuda.CUcheckpointLockArgs()
    arguments.timeoutMs = timeout_ms
    answer: tuple[Any, ...] = cuda.cuCheckpointProcessLock(ME, arguments)
    return answer


def checkpoint() -> tuple[Any, ...]:
    answer: tuple[Any, ...] = cuda.cuCheckpointProcessCheckpoint(ME, None)
    return answer


def restore() -> tuple[Any, ...]:
    answer: tuple[Any, ...] = cuda.cuCheckpointProcessRestore(ME, None)
    return answer


def unlock() -> tuple[Any, ...]:
    answer: tuple[Any, ...] = cuda.cuCheckpointProcessUnlock(ME, None)
    return answer


def leave() -> None:
    ok(lock())
    ok(checkpoint())


def come_back() -> None:
    ok(restore())
    ok(unlock())


def used_bytes(gpu: int = 0) -> int:
    """The GPU's memory in use, as tools see it that make no CUDA call."""
    used = ctypes.c_uint64()
    assert DRIVER.orion_sim_gpu_memory(gpu, None, ctypes.byref(used)) == 0
    return used.value


def listed(gpu: int = 0) -> int:
    """The number of processes on the GPU."""
    return int(DRIVER.orion_sim_gpu_processes(gpu, None, None, 0))


def contents(address: Any, size: int) -> bytes:
    back = bytearray(size)
    ok(cuda.cuMemcpyDtoH(back, address, size))
    return bytes(back)


def exportable(device: int = 0) -> Any:
    """Properties of physical memory that can be exported."""
    properties = cuda.CUmemAllocationProp()
    properties.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.requestedHandleTypes = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device
    return properties


def mapped(handle: Any, size: int) -> Any:
    """The address at which physical memory is mapped for this device."""
    access = cuda.CUmemAccessDesc()
    access.location = exportable().location
    access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    address = ok(cuda.cuMemAddressReserve(size, 0, 0, 0))
    ok(cuda.cuMemMap(address, size, 0, handle, 0))
    ok(cuda.cuMemSetAccess(address, size, [access], 1))
    return address


class Caller(threading.Thread):
    """A thread that makes one CUDA call."""

    def __init__(self, context: Any, call: Callable[[], tuple[Any, ...]]) -> None:
        super().__init__()
        self.context, self.call = context, call
        self.begins, self.answer = threading.Event(), ()
        self.start()
        assert self.begins.wait(20)

    def run(self) -> None:
        ok(cuda.cuCtxSetCurrent(self.context)) if self.context else None
        self.begins.set()
        self.answer = self.call()

    def sleeps(self) -> bool:
        stat = Path(f"/proc/self/task/{self.native_id}/stat").read_text()
        return stat.rsplit(")", 1)[1].split()[0] == "S"

    def waits_in_the_driver(self) -> bool:
        """Whether the thread sleeps now and at ten more looks, and its call has not returned."""
        eventually(self.sleeps, "the thread sleeps")
        return all(self.sleeps() for _ in range(10)) and not self.answer


def is_lost(error: str) -> None:
    """Restore, which fails for good."""
    fails(restore(), error)
    assert state() == STATE.CU_PROCESS_STATE_FAILED
    fails(restore(), "OPERATING_SYSTEM")
    for call in (lock, checkpoint, unlock):
        fails(call(), "ILLEGAL_STATE")
    assert (used_bytes(), listed()) == (0, 0)
    os._exit(0)  # the program's own calls would wait for ever
