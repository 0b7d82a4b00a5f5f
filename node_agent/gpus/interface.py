"""What the agent asks of GPUs, whatever they are."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Gpu:
    """One GPU; ``uuid`` is "GPU-..." as the driver gives it, ``memory_bytes`` its whole memory."""

    uuid: str
    index: int
    model: str
    memory_bytes: int
    simulated: bool = False


class GpuSource(Protocol):
    """Where GPUs come from. Calls may take long when a driver is in trouble, so they run off the event loop."""

    name: str

    def find(self) -> list[Gpu]:
        """Return the GPUs of this machine, in the driver's order."""

    def memory_used_bytes(self, gpu: Gpu) -> int:
        """Return the memory in use as the device reports it; 0 where it does not."""

    def process_ids(self, gpu: Gpu) -> list[int]:
        """Return the processes that the device knows, in the agent's pid namespace; empty where it does not say."""
