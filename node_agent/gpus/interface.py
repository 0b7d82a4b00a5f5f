"""What the agent asks of GPUs, whatever they are."""

from dataclasses import dataclass
from typing import Protocol

from orion.node_agent.errors import AgentError


class GpusUnavailable(AgentError):
    """The driver does not answer, so nobody can say which GPUs there are; it may later."""


@dataclass(frozen=True)
class Gpu:
    """One GPU; ``uuid`` is "GPU-..." as the driver gives it, ``memory_bytes`` its whole memory."""

    uuid: str
    index: int
    model: str
    memory_bytes: int
    simulated: bool = False
    minor: int = 0
    """ Of /dev/nvidia<minor>. """
    numa_node: int | None = None
    """ Whose processors are nearest; None: there are none, or it is not known. """
    linked: tuple[str, ...] = ()
    """ UUIDs of the GPUs that NVLink joins to it. """


@dataclass(frozen=True)
class Health:
    """How a GPU is."""

    healthy: bool
    reason: str = ""
    """ One CamelCase word, such as Xid79 or GPULost; empty where it is healthy. """
    message: str = ""
    """ A sentence: what is wrong, and what to do; empty where it is healthy. """
    critical: bool = True
    """ Whether one look is enough to believe it; a driver may also fail to answer once, and be well. """


HEALTHY = Health(True)
GONE = Health(False, "GPUGone", "the driver no longer lists this GPU: it was taken out, or has fallen off the bus")


class GpuSource(Protocol):
    """Where GPUs come from.

    Calls may take long when a driver is in trouble, so they run off the event loop, and from more than one thread.
    """

    name: str

    def find(self) -> list[Gpu]:
        """Return the GPUs of this machine, in the driver's order.

        Raises:
            GpusUnavailable: the driver does not answer now.
        """

    def memory_used_bytes(self, gpu: Gpu) -> int:
        """Return the memory in use as the device reports it; 0 where it does not."""

    def process_ids(self, gpu: Gpu) -> list[int]:
        """Return the processes that the device knows, in the agent's pid namespace; empty where it does not say."""

    def health(self, gpu: Gpu) -> Health:
        """Return what is wrong now, or went wrong since the last call: each Xid is reported once. Raises nothing."""

    def mig_enabled(self, gpu: Gpu) -> bool:
        """Return whether the GPU is cut into MIG instances; as last known where that cannot be said. Raises nothing."""

    def needs_restart(self) -> str:
        """Return why only another process could use the driver again, as a sentence; empty: this one can."""

    def close(self) -> None:
        """Ask no more."""
