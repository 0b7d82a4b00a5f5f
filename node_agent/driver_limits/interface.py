"""What the agent needs of a driver that limits the device memory of cgroups."""

from pathlib import Path
from typing import Protocol


class LimitsMemory(Protocol):
    """A driver that limits how much of a GPU's memory the processes of a cgroup may hold together.

    Calls can take long when a driver is in trouble, so they run outside the event loop: those about one GPU one
    after the other, those about several GPUs at the same time.
    """

    def set(self, gpu: str, cgroup: Path, limit_bytes: int) -> None:
        """Set the limit, or change it.

        Args:
            gpu: the UUID, as the driver writes it.
            cgroup: the cgroup's folder, in cgroup v2.
            limit_bytes: at least 1.

        Raises:
            Unavailable: the driver has no such limits, or refuses this one, as when more is in use already.
        """

    def remove(self, gpu: str, cgroup: Path) -> None:
        """Remove the limit; a cgroup without one is no error.

        Raises:
            Unavailable: the driver does not do it now.
        """
