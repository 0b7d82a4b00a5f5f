"""Describes a GPU by what NVML and the kernel say of it.

A GPU's NUMA node is read from its PCI slot, because that node has the nearest processors. `nvmlDeviceGetNumaNodeId`
returns another node: the one of the GPU's own memory.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from orion.node_agent.gpus.interface import Gpu, Kind
from orion.node_agent.gpus.nvml_events import text

PCI_DEVICES = Path("/sys/bus/pci/devices")


class Descriptions:
    """Descriptions of the GPUs of one library.

    Args:
        nvml: the library.
        pci_devices: where the kernel shows PCI devices.
    """

    def __init__(self, nvml: Any, pci_devices: Path) -> None:
        self._nvml = nvml
        self._pci_devices = pci_devices

    def gpu(self, index: int, handle: Any) -> Gpu:
        """Return the description of a GPU.

        Raises:
            NVMLError: the GPU does not answer.
        """
        return Gpu(
            uuid=text(self._nvml.nvmlDeviceGetUUID(handle)),
            index=index,
            model=text(self._nvml.nvmlDeviceGetName(handle)),
            memory_bytes=int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total),
            minor=self._minor(handle, index),
            numa_node=self._node(handle),
            kind=Kind(
                self._asked(lambda: "{}.{}".format(*self._nvml.nvmlDeviceGetCudaComputeCapability(handle))),
                self._asked(lambda: text(self._nvml.nvmlSystemGetDriverVersion())),
                self._asked(lambda: self._pci(handle).name),
                self._asked(lambda: next(each for each in self._pci(handle).resolve().parts if each.startswith("pci"))),
            ),
        )

    def is_linked(self, handle: Any, peer: Any) -> bool:
        """Return whether NVLink connects two GPUs, directly or by a switch."""
        nvml = self._nvml
        try:
            status = nvml.nvmlDeviceGetP2PStatus(handle, peer, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
        except nvml.NVMLError:
            return False
        return bool(status == nvml.NVML_P2P_STATUS_OK)

    def _asked(self, ask: Callable[[], str]) -> str:
        """Return an answer; empty if the driver or the kernel does not say."""
        try:
            return ask()
        except (self._nvml.NVMLError, OSError, ValueError, StopIteration):
            return ""

    def _minor(self, handle: Any, index: int) -> int:
        try:
            return int(self._nvml.nvmlDeviceGetMinorNumber(handle))
        except self._nvml.NVMLError as error:
            if error.value != self._nvml.NVML_ERROR_NOT_SUPPORTED:
                raise  # a wrong number would give the container another GPU
            return index

    def _node(self, handle: Any) -> int | None:
        try:
            node = int((self._pci(handle) / "numa_node").read_text())
        except (self._nvml.NVMLError, OSError, ValueError):
            return None
        return node if node >= 0 else None

    def _pci(self, handle: Any) -> Path:
        """Return the folder in which the kernel shows the GPU's PCI device.

        Raises:
            NVMLError, ValueError: the driver does not say where the GPU is.
        """
        domain, _, rest = text(self._nvml.nvmlDeviceGetPciInfo(handle).busId).lower().partition(":")
        # NVML writes PCI domains with eight digits, the kernel with at least four.
        return self._pci_devices / f"{int(domain, 16):04x}:{rest}"
