"""Threads that allocate and free memory at random, by every way of the driver that holds memory of the GPU."""

import ctypes
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from orion.bench.memory import gpu
from orion.bench.workload import NoTrace, Trace
from orion.bench.workloads import driver
from orion.bench.workloads.driver import call, made

_UNIT = 2 * gpu.MIB
_OUT_OF_MEMORY = 2
_PINNED, _ON_DEVICE = 1, 1  # CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE
_WIDTH = 1 << 16
_BYTES_OF_8_BITS = 1  # CU_AD_FORMAT_UNSIGNED_INT8

Free = Callable[[], object]


class _Properties(ctypes.Structure):
    """CUmemAllocationProp of cuda.h."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location_type", ctypes.c_int),
        ("location", ctypes.c_int),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Array(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR of cuda.h."""

    _fields_ = (
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("format", ctypes.c_int),
        ("channels", ctypes.c_uint),
    )


def _plain(size: int, stream: ctypes.c_void_p) -> tuple[int, Free]:
    status, address = gpu.allocate(size)
    return status, lambda: gpu.free(address)


def _pitched(size: int, stream: ctypes.c_void_p) -> tuple[int, Free]:
    address, pitch = ctypes.c_uint64(), ctypes.c_size_t()
    rows = ctypes.c_size_t(size // _WIDTH)
    status = driver.library().cuMemAllocPitch_v2(
        ctypes.byref(address), ctypes.byref(pitch), ctypes.c_size_t(_WIDTH), rows, ctypes.c_uint(4)
    )
    return status, lambda: gpu.free(address.value)


def _ordered(size: int, stream: ctypes.c_void_p) -> tuple[int, Free]:
    address = ctypes.c_uint64()
    status = driver.library().cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t(size), stream)
    return status, lambda: call("cuMemFreeAsync", address, stream)


def _virtual(size: int, stream: ctypes.c_void_p) -> tuple[int, Free]:
    handle = ctypes.c_uint64()
    properties = _Properties(type=_PINNED, location_type=_ON_DEVICE)
    status = driver.library().cuMemCreate(
        ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties), ctypes.c_ulonglong(0)
    )
    return status, lambda: call("cuMemRelease", handle)


def _array(size: int, stream: ctypes.c_void_p) -> tuple[int, Free]:
    array = ctypes.c_void_p()
    wanted = _Array(_WIDTH // 2, size // _WIDTH * 2, _BYTES_OF_8_BITS, 1)
    status = driver.library().cuArrayCreate_v2(ctypes.byref(array), ctypes.byref(wanted))
    return status, lambda: call("cuArrayDestroy", array)


_WAYS = {"plain": _plain, "pitched": _pitched, "ordered": _ordered, "virtual": _virtual, "array": _array}


class Churner:
    """Threads that allocate and free.

    Args:
        threads: how many.
        most_mib: the largest allocation.
        seed: of the random numbers.
    """

    unit, amount = "allocations", 1.0

    def __init__(self, threads: int, most_mib: int, seed: int) -> None:
        self.gpu, self._context = gpu.take()
        self.trace: Trace = NoTrace()
        self.details: dict[str, Any] = {"threads": threads, "most_mib": most_mib}
        self._threads, self._most, self._seed = threads, most_mib, seed

    def churn(self, end: float) -> dict[str, Any]:
        """Allocate and free until a time of CLOCK_MONOTONIC; return how often each way gave which CUresult."""
        found: list[Counter[str]] = [Counter() for _ in range(self._threads)]
        threads = [
            threading.Thread(target=self._churn, args=(random.Random(f"{self._seed} {number}"), end, counter))
            for number, counter in enumerate(found)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"results": dict(sum(found, Counter()))}

    def _churn(self, draw: random.Random, end: float, counter: Counter[str]) -> None:
        call("cuCtxSetCurrent", self._context)
        stream, held = made("cuStreamCreate", ctypes.c_uint(1)), list[Free]()
        while time.monotonic() < end:
            way = draw.choice(list(_WAYS))
            status, free = _WAYS[way](draw.randint(1, max(1, self._most // 2)) * _UNIT, stream)
            counter[f"{way} {status}"] += 1
            if status == 0:
                held.append(free)
            while held and (status == _OUT_OF_MEMORY or draw.random() < 0.5):
                held.pop(draw.randrange(len(held)))()
                status = 0
        for free in held:
            free()
        call("cuStreamSynchronize", stream)
