"""Checks the NVIDIA driver, NVML and the GPUs' settings."""

import ctypes
from collections.abc import Iterator

from orion.cli.checks import Check, fail, note, ok

OLDEST_DRIVER = 12050  # CUDA 12.5: cuCtxRecordEvent, by which the hook finds out that all work of a context is complete
INSTALL = "install NVIDIA's driver (555 or later), or check the simulated GPU alone: `orion doctor --simulated`"


def examine() -> Iterator[Check]:
    """Check libcuda, then the GPUs through NVML."""
    yield _libcuda()
    yield from _nvml()


def _libcuda() -> Check:
    name = "CUDA driver"
    try:
        libcuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return fail(name, "libcuda.so.1 is not found", INSTALL)
    version = ctypes.c_int()
    if libcuda.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return fail(name, "libcuda.so.1 does not report its version", INSTALL)
    cuda = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    if version.value < OLDEST_DRIVER:
        return fail(name, f"the driver supports {cuda}, but Orion needs 12.5 or later", INSTALL)
    return ok(name, f"the driver supports {cuda}")


def _nvml() -> Iterator[Check]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        yield fail("NVML", f"NVIDIA's management library (NVML) does not answer: {error}",
                   "`nvidia-smi` must work for the user that runs the agent")  # fmt: skip
        return
    try:
        count = pynvml.nvmlDeviceGetCount()
        if count:
            yield ok("NVML", f"{count} GPU{'s' if count > 1 else ''}")
        else:
            yield fail("NVML", "there is no GPU", "check with `nvidia-smi` and the hypervisor")
        for index in range(count):
            yield _device(index)
    finally:
        pynvml.nvmlShutdown()


def _device(index: int) -> Check:
    import pynvml

    name = f"GPU {index}"
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        model = pynvml.nvmlDeviceGetName(handle)
        mode = pynvml.nvmlDeviceGetComputeMode(handle)
    except pynvml.NVMLError as error:
        return fail(name, f"does not answer: {error}", "look at `nvidia-smi -q` and the kernel log")
    if mode == pynvml.NVML_COMPUTEMODE_PROHIBITED:
        return fail(
            name, f"{model}: the compute mode PROHIBITED allows no process", f"`nvidia-smi -i {index} -c DEFAULT`"
        )
    if mode == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS:
        return fail(name, f"{model}: the compute mode EXCLUSIVE_PROCESS allows only one process",
                    f"`nvidia-smi -i {index} -c DEFAULT`")  # fmt: skip
    try:
        if pynvml.nvmlDeviceGetMigMode(handle)[0]:
            return note(name, f"{model}: MIG is enabled; Orion shares whole GPUs and does not use MIG slices",
                        f"`nvidia-smi -i {index} -mig 0` to share it")  # fmt: skip
    except pynvml.NVMLError:
        pass  # a GPU without MIG
    return ok(name, f"{model}: compute mode DEFAULT")
