"""No GPU: an implementation, so that nothing else has to ask."""

from orion.node_agent.gpus.interface import HEALTHY, Gpu, Health


class NoGpus:
    """A machine without GPUs."""

    name = "none"

    def find(self) -> list[Gpu]:
        """Return nothing."""
        return []

    def memory_used_bytes(self, gpu: Gpu) -> int:
        """Return 0."""
        return 0

    def process_ids(self, gpu: Gpu) -> list[int]:
        """Return nothing."""
        return []

    def health(self, gpu: Gpu) -> Health:
        """Return that nothing is wrong."""
        return HEALTHY

    def mig_enabled(self, gpu: Gpu) -> bool:
        """Return False."""
        return False

    def needs_restart(self) -> str:
        """Return nothing."""
        return ""

    def close(self) -> None:
        """Do nothing."""
