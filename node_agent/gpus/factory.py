"""Which implementation finds this machine's GPUs."""

import logging
import os
from pathlib import Path
from typing import Literal

from orion.node_agent.errors import Invalid
from orion.node_agent.gpus.interface import GpuSource
from orion.node_agent.gpus.none import NoGpus
from orion.node_agent.gpus.nvml import NvmlGpus
from orion.node_agent.gpus.simulated import SimulatedGpus

Choice = Literal["auto", "nvml", "simulated", "none"]

_log = logging.getLogger(__name__)


def choose(choice: Choice, simulated_library: Path | None) -> GpuSource:
    """Return the source of GPUs.

    Args:
        choice: which one; ``auto`` takes NVML where that finds a GPU, else simulated GPUs where they were asked for
            (by a library, or by ``ORION_SIM_GPUS`` in the environment), else none.
        simulated_library: the simulated driver; None: the one that came with this package.

    Raises:
        Invalid: the chosen one cannot work here.
    """
    if choice == "none":
        return NoGpus()
    if choice == "nvml":
        return _nvml()
    if choice == "simulated":
        return _simulated(simulated_library)
    try:
        source = _nvml()
        if source.find():
            return source
    except Invalid as reason:
        _log.info("gpus: %s", reason)
    if simulated_library is not None or os.environ.get("ORION_SIM_GPUS"):
        return _simulated(simulated_library)
    return NoGpus()


def _nvml() -> GpuSource:
    try:
        return NvmlGpus()
    except Exception as error:  # NVML's exceptions exist only once it is imported
        raise Invalid(f"NVML does not work here: {error}") from error


def _simulated(library: Path | None) -> GpuSource:
    from orion import hook

    try:
        return SimulatedGpus(library or hook.simulated_driver())
    except (OSError, AttributeError) as error:
        raise Invalid(f"the simulated driver cannot be used: {error}") from error
