"""How a slot shares a GPU's memory with others, beside its limit."""

from dataclasses import dataclass


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
