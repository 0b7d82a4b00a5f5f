"""Chooses the implementation that finds this machine's GPUs."""

import logging
import os
from pathlib import Path
from typing import Literal

from orion.errors import NotFound, Unavailable
from orion.node_agent.gpus.interface import HEALTHY, Gpu, GpuSource, Health
from orion.node_agent.gpus.nvml import NvmlGpus
from orion.node_agent.gpus.remembering import RememberingGpus
from orion.node_agent.gpus.simulated import SimulatedGpus

Choice = Literal["auto", "nvml", "simulated", "none"]

_log = logging.getLogger(__name__)

_PCI_DEVICES = Path("/sys/bus/pci/devices")
_NVIDIA = "0x10de"
_DISPLAY = "0x03"


class NoGpus:
    """A machine without GPUs, so that callers need no special case."""

    name = "none"

    def find(self) -> list[Gpu]:
        """Return an empty list."""
        return []

    def memory_used_bytes(self, gpu: Gpu) -> int:
        """Return 0."""
        return 0

    def memory_free_bytes(self, gpu: Gpu) -> int | None:
        """Return None."""
        return None

    def process_ids(self, gpu: Gpu) -> list[int]:
        """Return an empty list."""
        return []

    def memory_of_processes(self, gpu: Gpu) -> dict[int, int | None] | None:
        """Return that no process holds anything."""
        return {}

    def health(self, gpu: Gpu) -> Health:
        """Return that the GPU is healthy."""
        return HEALTHY

    def mig_enabled(self, gpu: Gpu) -> bool:
        """Return False."""
        return False

    def needs_restart(self) -> str:
        """Return an empty string."""
        return ""

    def close(self) -> None:
        """Do nothing."""


def choose(choice: Choice, simulated_library: Path | None, memory: Path | None = None) -> GpuSource:
    """Return the source of GPUs.

    Args:
        choice: which source. ``auto`` takes the first source whose condition is true. NVML: NVML finds a GPU.
            Simulated GPUs: they were requested, by a library or by ``ORION_SIM_GPUS`` in the environment. NVML without
            a GPU: the machine has an NVIDIA GPU, so its driver may be loaded later. If no condition is true, no GPUs.
        simulated_library: the simulated driver; None: the simulated driver of this package.
        memory: the file that keeps the GPUs found by NVML for a start without the driver; None: no file.

    Raises:
        NotFound: the chosen source cannot work here, now or later.
    """
    if choice == "none":
        return NoGpus()
    if choice == "nvml":
        return _nvml(memory)
    if choice == "simulated":
        return _simulated(simulated_library)
    reason: Exception
    try:
        source = _nvml(memory)
        if source.find():
            return source
        reason = NotFound("NVML finds no GPU")
    except (NotFound, Unavailable) as error:
        reason = error
    _log.info("gpus: %s", reason)
    if simulated_library is not None or os.environ.get("ORION_SIM_GPUS"):
        return _simulated(simulated_library)
    if isinstance(reason, Unavailable) and has_nvidia_gpu():
        return source
    return NoGpus()


def has_nvidia_gpu(pci_devices: Path = _PCI_DEVICES) -> bool:
    """Return whether the kernel sees an NVIDIA GPU, with or without a driver."""
    for device in pci_devices.glob("*"):
        try:
            vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == _NVIDIA and kind.startswith(_DISPLAY):
            return True
    return False


def _nvml(memory: Path | None) -> GpuSource:
    try:
        source = NvmlGpus()
    except ImportError as error:
        raise NotFound(f"NVML does not work here: {error}") from error
    return RememberingGpus(source, memory) if memory else source


def _simulated(library: Path | None) -> GpuSource:
    from orion import hook
    from orion.hook import simulated

    try:
        source = SimulatedGpus(library or hook.simulated_driver())
    except (OSError, AttributeError) as error:
        raise NotFound(f"the simulated driver cannot be used: {error}") from error
    count, wanted = len(source.find()), os.environ.get("ORION_SIM_GPUS", "")
    if wanted not in ("", str(count)):
        _log.warning(
            "gpus: the simulated machine keeps the number of its GPUs, %d, although ORION_SIM_GPUS is %s: "
            "to change it, end the programs that use them, remove the files in %s, and start the agent again",
            count, wanted, simulated.state_folder(),
        )  # fmt: skip
    return source
