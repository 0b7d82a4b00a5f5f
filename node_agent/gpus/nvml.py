"""NVIDIA's GPUs, through NVML.

The driver may be loaded after the agent starts, may be replaced while the agent runs, and may stop answering for one
GPU. This source continues in all three cases, and it reports each GPU that does not answer as unhealthy. The next
search initialises the library again.
"""

import contextlib
import logging
import threading
from concurrent.futures import TimeoutError as NotYet
from dataclasses import replace
from pathlib import Path
from typing import Any

from orion.errors import Unavailable
from orion.node_agent.gpus import nvml_health, xids
from orion.node_agent.gpus.asking import AskingThread
from orion.node_agent.gpus.interface import GONE, Gpu, Health
from orion.node_agent.gpus.nvml_descriptions import PCI_DEVICES, Descriptions
from orion.node_agent.gpus.nvml_events import ErrorEvents

_log = logging.getLogger(__name__)

_END_SECONDS = 1.0


class NvmlGpus:
    """GPUs as NVML lists them. Any thread may call.

    Args:
        pci_devices: where the kernel shows PCI devices.

    Raises:
        ImportError: nvidia-ml-py is not installed.
    """

    name = "nvml"

    def __init__(self, pci_devices: Path = PCI_DEVICES) -> None:
        # Here, not above: most machines that import this module have no driver.
        import pynvml

        self._nvml: Any = pynvml
        self._descriptions = Descriptions(pynvml, pci_devices)
        self._lock = threading.Lock()
        """ Held while the library is initialised or shut down. """
        self._begun = False
        self._mismatch = self._replaced = False
        """ `_mismatch`: the loaded library and the driver have different versions. `_replaced`: they differ because
        the driver was replaced after this process loaded the library. """
        self._answered = False
        """ The library was initialised once, or failed for another reason than its version. """
        self._handles: dict[str, Any] = {}
        """ NVML's handles by UUID. They include GPUs that the last search missed: only a query of such a GPU shows
        whether the GPU is lost or the search was wrong. """
        self._mig: dict[str, bool] = {}
        """ By UUID, the last answer to whether the GPU has MIG enabled. """
        self._silent: dict[int, str] = {}
        """ By index, why a GPU did not answer the last search, as logged. """
        self._events = ErrorEvents(pynvml)

    def find(self) -> list[Gpu]:
        """Return the GPUs in NVML's order.

        Raises:
            Unavailable: the driver does not answer.
        """
        with self._lock:
            try:
                try:
                    return self._find()
                except self._nvml.NVMLError:
                    if not self._begun:
                        raise
                    self._end()  # a transient error or a new driver: initialise the library again
                    return self._find()
            except self._nvml.NVMLError as error:
                self._end()
                raise Unavailable(f"the NVIDIA driver does not answer: {error}") from error

    def memory_used_bytes(self, gpu: Gpu) -> int:
        """Return the used memory as the driver reports it."""
        try:
            return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handles[gpu.uuid]).used)
        except (self._nvml.NVMLError, KeyError):
            return 0

    def memory_free_bytes(self, gpu: Gpu) -> int | None:
        """Return the free memory as the driver reports it."""
        try:
            return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handles[gpu.uuid]).free)
        except (self._nvml.NVMLError, KeyError):
            return None

    def process_ids(self, gpu: Gpu) -> list[int]:
        """Return the processes with a compute context."""
        try:
            return [int(each.pid) for each in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handles[gpu.uuid])]
        except (self._nvml.NVMLError, KeyError):
            return []

    def memory_of_processes(self, gpu: Gpu) -> dict[int, int | None] | None:
        """Return what each process with a compute context holds; None where the driver does not say, as with MIG."""
        try:
            listed = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handles[gpu.uuid])
        except (self._nvml.NVMLError, KeyError):
            return None
        return {int(each.pid): None if each.usedGpuMemory is None else int(each.usedGpuMemory) for each in listed}

    def health(self, gpu: Gpu) -> Health:
        """Return what is wrong now, or went wrong since the last call."""
        nvml, handle = self._nvml, self._handles.get(gpu.uuid)
        if handle is None and self._begun:
            return GONE
        if handle is None and self._replaced:
            return nvml_health.REPLACED
        if handle is None and self._mismatch:
            return nvml_health.MISMATCH
        if handle is None:
            return nvml_health.AWAY
        try:
            xid = self._events.take(gpu.uuid, self._handles)
            if xid is not None:
                return Health(False, f"Xid{xid}", xids.sentence(xid))
            nvml.nvmlDeviceGetMemoryInfo(handle)
            return nvml_health.recovery(nvml, handle)
        except nvml.NVMLError as error:
            return nvml_health.trouble(nvml, error)

    def mig_enabled(self, gpu: Gpu) -> bool:
        """Return whether the GPU has MIG enabled; the last answer if the driver gives none."""
        handle = self._handles.get(gpu.uuid)
        if handle is None:
            return self._mig.get(gpu.uuid, False)  # True would hide from people why the GPU is unhealthy
        try:
            enabled = bool(self._nvml.nvmlDeviceGetMigMode(handle)[0])
        except self._nvml.NVMLError as error:
            if error.value != self._nvml.NVML_ERROR_NOT_SUPPORTED:
                return self._mig.get(gpu.uuid, True)  # open no slots on a GPU that may have MIG enabled
            enabled = False  # the GPU does not support MIG
        self._mig[gpu.uuid] = enabled
        return enabled

    def needs_restart(self) -> str:
        """Return a sentence if the driver was replaced, because this process keeps the old library; else empty."""
        return nvml_health.REPLACED.message if self._replaced else ""

    def close(self) -> None:
        """Shut the library down. If the driver hangs, the kernel ends the call with the process."""
        thread = AskingThread("end")
        ending = thread.submit(self._close)
        thread.close()
        with contextlib.suppress(NotYet):
            ending.result(_END_SECONDS)

    def _close(self) -> None:
        with self._lock:
            self._end()

    # -- Initialising and searching ------------------------------------------------------------------------------------

    def _find(self) -> list[Gpu]:
        if not self._begun:
            self._begin()
        found: list[tuple[Gpu, Any]] = []
        count, failure = self._nvml.nvmlDeviceGetCount(), None
        for index in range(count):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                found.append((self._descriptions.gpu(index, handle), handle))
            except self._nvml.NVMLError as error:  # a lost GPU must not hide the others
                failure = error
                self._log_silent(index, str(error))
            else:
                self._silent.pop(index, None)
        if failure is not None and not found:
            raise failure
        answering = {gpu.uuid: handle for gpu, handle in found}
        self._handles = self._handles | answering
        self._events.register(answering)
        return [replace(gpu, linked=self._links(gpu, handle)) for gpu, handle in found]

    def _begin(self) -> None:
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            self._mismatch = error.value == self._nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
            self._replaced = self._mismatch and self._answered
            self._answered = self._answered or not self._mismatch
            raise
        if hasattr(getattr(self._nvml, "nvmlLib", None), "orion_sim_nvml"):
            # The simulated GPU's library, by LD_LIBRARY_PATH. Its GPUs have a source of their own: simulated.py.
            self._nvml.nvmlShutdown()
            raise self._nvml.NVMLError(self._nvml.NVML_ERROR_LIBRARY_NOT_FOUND)
        self._begun = self._answered = True
        self._mismatch = self._replaced = False

    def _log_silent(self, index: int, why: str) -> None:
        if self._silent.get(index) != why:
            _log.warning("gpus: the GPU with index %d does not answer: %s", index, why)
        self._silent[index] = why

    def _links(self, gpu: Gpu, handle: Any) -> tuple[str, ...]:
        """Return the GPUs that NVLink connects to this one, directly or by a switch."""
        others = ((uuid, peer) for uuid, peer in self._handles.items() if uuid != gpu.uuid)
        return tuple(uuid for uuid, peer in others if self._descriptions.is_linked(handle, peer))

    def _end(self) -> None:
        self._handles = {}
        self._events.end()
        if self._begun:
            self._begun = False
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError as error:
                _log.info("gpus: %s", error)
