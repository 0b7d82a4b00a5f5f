"""Finds the GPUs to measure on, and their free memory."""

import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orion.errors import NotFound


@dataclass(frozen=True)
class Device:
    """One GPU. A simulated GPU has an empty UUID, since its UUID is only known after its creation."""

    index: int
    uuid: str
    model: str

    def to_json(self) -> dict[str, Any]:
        """Return plain types."""
        return {"index": self.index, "uuid": self.uuid, "model": self.model}


def choose(wanted: str | None, simulated: bool) -> list[Device]:
    """Find the GPUs that the user named.

    Args:
        wanted: "all", or indices and UUIDs separated by commas; None: the first GPU that this process may use.
        simulated: Return simulated GPUs with these indices.

    Raises:
        NotFound: A GPU does not exist.
    """
    if simulated:
        names = (wanted or "0").split(",")
        if not all(name.isdecimal() for name in names):
            raise NotFound(f"--gpus {wanted}: simulated GPUs are numbers, such as 0,1")
        return [Device(int(name), "", "simulated GPU") for name in dict.fromkeys(names)]
    present = _present()
    if wanted == "all":
        return present
    if wanted is None:
        wanted = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"
    found = {device.uuid: device for device in (_named(name.strip(), present) for name in wanted.split(","))}
    return list(found.values())


def others(device: Device, ranks: int, simulated: bool) -> list[Device]:
    """Return the GPUs that the ranks of a job use beside `device`; none if a job has one rank."""
    if ranks == 1:
        return []
    if simulated:  # each simulated machine has GPUs of its own
        return [Device(index, "", device.model) for index in range(1, ranks)]
    return [each for each in _present() if each != device]


def _named(name: str, present: list[Device]) -> Device:
    for device in present:
        if name == str(device.index) or (name.startswith("GPU-") and device.uuid.startswith(name)):
            return device
    raise NotFound(
        f"there is no GPU {name}; this machine has {', '.join(f'{each.index} ({each.uuid})' for each in present)}"
    )


def _present() -> list[Device]:
    with _nvml() as nvml:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        devices = [
            Device(index, _text(nvml.nvmlDeviceGetUUID(handle)), _text(nvml.nvmlDeviceGetName(handle)))
            for index, handle in enumerate(handles)
        ]
    if not devices:
        raise NotFound("the driver finds no GPU; --simulated runs without one")
    return devices


def free_gib(device: Device) -> float:
    """Return the GPU's free memory in GiB; infinity if it is unknown."""
    if not device.uuid:
        return math.inf
    try:
        with _nvml() as nvml:
            memory = nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(device.uuid))
            return float(memory.free) / 2**30
    except NotFound:
        return math.inf


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    try:
        import pynvml
    except ImportError as error:
        raise NotFound("nvidia-ml-py is not installed, so no GPU can be found; --simulated runs without one") from error
    try:
        pynvml.nvmlInit()
        yield pynvml
    except pynvml.NVMLError as error:
        raise NotFound(f"no NVIDIA GPU can be used here ({error}); --simulated runs without one") from error


def _text(value: str | bytes) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value
