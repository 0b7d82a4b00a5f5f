"""How a slot shares a GPU's memory with others, beside its limit."""

from dataclasses import dataclass

from orion.hook import layout

_SURE_MS = 30_000
""" How long be waits for what it is sure of. """


@dataclass(frozen=True)
class MemorySharing:
    """What a slot is sure of, and how it makes room or waits for it."""

    request_bytes: int = 0
    """ What it is sure to get; 0: nothing. """
    parks: bool = False
    """ be: its processes may have to leave the GPU's memory, and wait, while others need the room. """
    unified: bool = False
    """ be: its device allocations become managed memory, which the driver moves page by page (memory/unified.h). """
    wait_ms: int = 0
    """ hp: how long an allocation waits for others to leave a full GPU; 0: it fails at once. """
    may_be_evicted: bool = True
    """ be: whether the operator evicts the pod if it does not leave. Without an operator nobody is evicted, and true
    shows who is in the way. """

    @property
    def is_sure(self) -> bool:
        """Whether the slot is sure of memory that it does not make room of: others that have borrowed it leave."""
        return self.request_bytes > 0 and not self.parks and not self.unified

    def patience_ns(self, role: layout.Role) -> int:
        """Return how long an allocation waits for others to leave a full GPU; 0: not at all."""
        wait_ms = self.wait_ms if role is layout.Role.HP else _SURE_MS * self.is_sure
        return wait_ms * 1_000_000
