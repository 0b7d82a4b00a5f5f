"""The limits of NVIDIA's driver, by NVML's nvmlDeviceSetMemoryLimits_v1 (driver 615, CUDA 13.4).

Only the hard limit is used. A client above its soft limit is killed where another one finds no room; Orion's clients
leave the GPU's memory and return. Without soft limits the driver also keeps nothing back for a cgroup that is gone.
"""

from pathlib import Path
from typing import Any

from orion.errors import Unavailable

_SET = "nvmlDeviceSetMemoryLimits_v1"
_NO_SOFT_LIMIT = 0


class NvmlLimits:
    """The limits that the machine's NVML sets.

    Raises:
        ImportError: nvidia-ml-py is not installed.
    """

    def __init__(self) -> None:
        # Here, not above: most machines that import this module have no driver.
        import pynvml

        self._nvml: Any = pynvml

    def set(self, gpu: str, cgroup: Path, limit_bytes: int) -> None:
        """Set the limit of a cgroup on a GPU, or change it.

        Raises:
            Unavailable: the driver has no such limits, or refuses this one.
        """
        self._call(gpu, cgroup, limit_bytes)

    def remove(self, gpu: str, cgroup: Path) -> None:
        """Remove the limit of a cgroup on a GPU.

        Raises:
            Unavailable: the driver does not do it now.
        """
        self._call(gpu, cgroup, self._nvml.NVML_DEVICE_MEMORY_LIMIT_MAX)

    def _call(self, gpu: str, cgroup: Path, limit_bytes: int) -> None:
        if not hasattr(self._nvml, _SET):
            raise Unavailable("the installed nvidia-ml-py is older than 13.615, which has the driver's memory limits")
        limits = self._nvml.c_nvmlSetMemoryLimits_v1_t()
        limits.nameSpace, limits.softLimit, limits.hardLimit = str(cgroup).encode(), _NO_SOFT_LIMIT, limit_bytes
        try:
            self._nvml.nvmlInit()
            try:
                handle = self._nvml.nvmlDeviceGetHandleByUUID(gpu.encode())
                getattr(self._nvml, _SET)(handle, limits)
            finally:
                self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            if error.value == self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise Unavailable("this driver has no memory limits for containers, which came with 615") from None
            raise Unavailable(f"the driver refuses the limit: {error}") from None
