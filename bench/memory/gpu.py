"""Memory and kernels of a tenant by the CUDA driver, the same on a real and on the simulated GPU."""

import ctypes
import time
from collections.abc import Callable

from orion.bench.workloads import driver
from orion.bench.workloads.driver import call, made
from orion.errors import Unavailable

MIB = 1 << 20
BLOCK_MIB = 512
""" A tenant takes its memory in blocks of this size, as a framework's allocator does. """

_AGAIN_SECONDS = 0.05


def take() -> tuple[str, ctypes.c_void_p]:
    """Make the first GPU's context current; return the GPU's name and the context."""
    device, name = ctypes.c_int(), ctypes.create_string_buffer(64)
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    context = made("cuDevicePrimaryCtxRetain", device)
    call("cuCtxSetCurrent", context)
    call("cuDeviceGetName", name, len(name), device)
    return name.value.decode(), context


def allocate(size: int, managed: bool = False) -> tuple[int, int]:
    """Allocate bytes, of managed memory if wanted; return the CUresult and the address."""
    address = ctypes.c_uint64()
    if managed:
        everywhere = ctypes.c_uint(1)  # CU_MEM_ATTACH_GLOBAL
        status: int = driver.library().cuMemAllocManaged(ctypes.byref(address), ctypes.c_size_t(size), everywhere)
    else:
        status = driver.library().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
    return status, address.value


def blocks(mib: int, patience: float = 0.0, managed: bool = False) -> list[tuple[int, int]]:
    """Allocate memory in blocks; return address and MiB of each.

    Args:
        mib: how much.
        patience: for how many seconds to try again while there is no room.
        managed: of managed memory.

    Raises:
        Unavailable: there is not so much.
    """
    found, deadline = [], time.monotonic() + patience
    while mib > 0:
        part = min(mib, BLOCK_MIB)
        status, address = allocate(part * MIB, managed)
        if status == 0:
            found.append((address, part))
            mib -= part
        elif time.monotonic() > deadline:
            raise Unavailable(f"an allocation of {part} MiB answered {status}")
        else:
            time.sleep(_AGAIN_SECONDS)
    return found


def free(address: int) -> None:
    """Free what `allocate` or `blocks` returned."""
    call("cuMemFree_v2", ctypes.c_uint64(address))


def free_mib() -> int:
    """Return what the driver says is free."""
    left, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(left), ctypes.byref(total))
    return left.value // MIB


def kernel(simulated: bool, milliseconds: float) -> Callable[[int], None]:
    """Return a function that launches a kernel of this length on the default stream.

    Its argument is the address of the memory that the kernel works on, or 0. The simulated GPU lets the kernel touch
    that memory; the kernel of a real GPU touches none.
    """
    if not simulated:
        from orion.bench.workloads.spinning import SpinKernel

        spin = SpinKernel("elapsed", 132, 1024, 0)
        spin.argument.value = round(milliseconds * 1e6)
        return lambda _: spin.launch()
    image = f"orion-sim 1\nkernel work duration_us={milliseconds * 1e3:.3f} sms=132 params=8\n"
    function = made("cuModuleGetFunction", made("cuModuleLoadData", image.encode()), b"work")
    address = ctypes.c_uint64()
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(address))
    arguments = (function, 1, 1, 1, 1, 1, 1, 0, ctypes.c_void_p(0), parameters, None)

    def launch(at: int) -> None:
        address.value = at
        call("cuLaunchKernel", *arguments)

    return launch


def wait() -> None:
    """Wait for all queued work."""
    call("cuCtxSynchronize")
