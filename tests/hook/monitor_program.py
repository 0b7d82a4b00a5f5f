"""A program of a user that asks NVML, and may use CUDA, too: reads commands, and answers each with one line of JSON.

look           what NVML says of the first GPU
context        becomes a CUDA client
allocate N     allocates N bytes; the answer is the driver's result
info           cuMemGetInfo: free and total
total          cuDeviceTotalMem, which needs no context
narrow         both functions of CUDA 2, of 32 bits: free and total, and the total again
greedy N       allocates N times 0.95 of what NVML shows as free; the answer is the list of the driver's results
"""

import ctypes
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pynvml as nvml

Handle = Any


def processes(handle: Handle) -> list[list[int]]:
    """Return process ids and memory; the same from both versions of the function."""
    for _ in range(1_000):  # what they hold may change between the two calls
        lists = (
            nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle),
            nvml.nvmlDeviceGetComputeRunningProcesses(handle),
        )
        second, third = ([[each.pid, each.usedGpuMemory] for each in listed] for listed in lists)
        if second == third:
            return third
    raise AssertionError(f"one version lists {second}, the other one {third}")


def look(handle: Handle) -> dict[str, Any]:
    plain, second = nvml.nvmlDeviceGetMemoryInfo(handle), nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    return {
        "plain": [plain.total, plain.used, plain.free],
        "second": [second.total, second.used, second.free, second.reserved],
        "processes": processes(handle),
    }


def crowd(handle: Handle, threads: int) -> list[int]:
    """Return the totals that threads see; ctypes lets them call at the same time."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda _: int(nvml.nvmlDeviceGetMemoryInfo(handle).total), range(threads)))


def forked(handle: Handle) -> int:
    """Return the total that a forked child sees."""
    reads, writes = os.pipe()
    if os.fork() == 0:
        os.write(writes, str(nvml.nvmlDeviceGetMemoryInfo(handle).total).encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as child:
        return int(child.read())


class Cuda:
    """The few functions of the driver that the commands need."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._check(self._driver.cuInit(0))

    def context(self) -> None:
        context = ctypes.c_void_p()
        self._check(self._driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        self._check(self._driver.cuCtxSetCurrent(context))

    def allocate(self, size: int) -> int:
        return int(self._driver.cuMemAlloc_v2(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(size)))

    def info(self) -> list[int]:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._check(self._driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        return [free.value, total.value]

    def total(self) -> int:
        total = ctypes.c_size_t()
        self._check(self._driver.cuDeviceTotalMem_v2(ctypes.byref(total), 0))
        return total.value

    def narrow(self) -> list[int]:
        free, total, of_device = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
        self._check(self._driver.cuMemGetInfo(ctypes.byref(free), ctypes.byref(total)))
        self._check(self._driver.cuDeviceTotalMem(ctypes.byref(of_device), 0))
        return [free.value, total.value, of_device.value]

    def _check(self, result: int) -> None:
        assert result == 0, result


def main() -> None:
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    cuda: Any = None
    for line in sys.stdin:
        command, *numbers = line.split()
        answer: Any = 0
        if command == "look":
            answer = look(handle)
        elif command == "context":
            cuda = cuda or Cuda()
            cuda.context()
        elif command == "allocate":
            answer = cuda.allocate(int(numbers[0]))
        elif command == "info":
            answer = cuda.info()
        elif command == "total":
            cuda = cuda or Cuda()
            answer = cuda.total()
        elif command == "narrow":
            answer = cuda.narrow()
        elif command == "crowd":
            answer = crowd(handle, int(numbers[0]))
        elif command == "fork":
            answer = forked(handle)
        elif command == "greedy":
            steps = range(int(numbers[0]))
            answer = [cuda.allocate(int(0.95 * nvml.nvmlDeviceGetMemoryInfo(handle).free)) for _ in steps]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
