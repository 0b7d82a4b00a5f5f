"""What the agent needs of any GPU."""

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
    minor: int = 0
    """ The number in /dev/nvidia<minor>. """
    numa_node: int | None = None
    """ The NUMA node of the nearest processors; None: there is none, or it is not known. """
    linked: tuple[str, ...] = ()
    """ UUIDs of the GPUs that NVLink connects to this one. """
    kind: "Kind | None" = None
    """ What programs and schedulers choose a GPU by; None: not known. """


@dataclass(frozen=True)
class Kind:
    """What programs and schedulers choose a GPU by. A text is empty if its value is not known."""

    compute_capability: str = ""
    """ As "9.0". """
    driver_version: str = ""
    """ As "580.95.05". """
    pci_bus_id: str = ""
    """ The PCI address as the kernel writes it: "0000:17:00.0". """
    pcie_root: str = ""
    """ The root complex above it: "pci0000:16". """


@dataclass(frozen=True)
class Health:
    """The health of a GPU."""

    healthy: bool
    reason: str = ""
    """ One CamelCase word, such as Xid79 or GPULost; empty: healthy. """
    message: str = ""
    """ What is wrong and what to do, in one sentence; empty: healthy. """
    critical: bool = True
    """ One such report makes the GPU unhealthy. False: the error may be transient, such as one missing answer. """


HEALTHY = Health(True)
GONE = Health(False, "GPUGone", "the driver no longer lists this GPU: it was taken out, or has fallen off the bus")


class GpuSource(Protocol):
    """A way to find GPUs and to query them.

    Calls can take long when a driver is in trouble, so they run outside the event loop, and in more than one thread.
    """

    name: str

    def find(self) -> list[Gpu]:
        """Return the GPUs of this machine, in the driver's order.

        Raises:
            Unavailable: the driver does not answer now.
        """

    def memory_used_bytes(self, gpu: Gpu) -> int:
        """Return the memory in use as the driver reports it; 0 if it does not."""

    def memory_free_bytes(self, gpu: Gpu) -> int | None:
        """Return the free memory as the driver reports it; None if it does not. Raises nothing."""

    def process_ids(self, gpu: Gpu) -> list[int]:
        """Return the process ids that the driver lists, in the agent's pid namespace; empty if it lists none."""

    def memory_of_processes(self, gpu: Gpu) -> dict[int, int | None] | None:
        """Return how many bytes each process holds, by its id, None where the driver does not say; None: no list."""

    def health(self, gpu: Gpu) -> Health:
        """Return what is wrong now or went wrong since the last call; it reports each Xid once. Raises nothing."""

    def mig_enabled(self, gpu: Gpu) -> bool:
        """Return whether the GPU has MIG enabled; without an answer, the last known one. Raises nothing."""

    def needs_restart(self) -> str:
        """Return in one sentence why this process can no longer use the driver; empty: it can."""

    def close(self) -> None:
        """Release the driver's library."""
