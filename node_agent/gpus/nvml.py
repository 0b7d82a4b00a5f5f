"""NVIDIA's GPUs, by NVML."""

from typing import Any

from orion.node_agent.gpus.interface import Gpu


def _text(value: str | bytes) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


class NvmlGpus:
    """GPUs as the driver's management library lists them.

    Raises:
        ImportError: nvidia-ml-py is not installed.
        pynvml.NVMLError: there is no driver, or it does not answer.
    """

    name = "nvml"

    def __init__(self) -> None:
        # Here, not above: most machines that import this module have no driver.
        import pynvml

        self._nvml: Any = pynvml
        pynvml.nvmlInit()
        self._handles: dict[str, Any] = {}

    def find(self) -> list[Gpu]:
        """Return the GPUs in NVML's order."""
        gpus = []
        for index in range(self._nvml.nvmlDeviceGetCount()):
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(self._nvml.nvmlDeviceGetUUID(handle))
            self._handles[uuid] = handle
            total = int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total)
            gpus.append(Gpu(uuid, index, _text(self._nvml.nvmlDeviceGetName(handle)), total))
        return gpus

    def memory_used_bytes(self, gpu: Gpu) -> int:
        """Return the memory that the driver counts as used."""
        try:
            return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handles[gpu.uuid]).used)
        except self._nvml.NVMLError:
            return 0

    def process_ids(self, gpu: Gpu) -> list[int]:
        """Return the processes with a compute context."""
        try:
            return [int(each.pid) for each in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handles[gpu.uuid])]
        except self._nvml.NVMLError:
            return []
