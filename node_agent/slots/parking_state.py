"""Where the memory of a slot's processes is, and what of a GPU is kept for hp; `parking/` writes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

_NUMBERS = 2**32


@dataclass
class SlotParking:
    """The wishes about one slot, and their result."""

    number: int = 0
    """ Of the last wish; odd: its processes shall leave the GPU's memory. Each wish adds 1. """
    is_wished_away: bool = False
    """ A person wants them away, until that person wants them back. """
    state: str = ""
    """ leaving, parked, returning, refused or lost; empty: as if nobody had asked. """
    since_ns: int = 0
    """ Since when (CLOCK_MONOTONIC). """
    began: float = 0.0
    """ The same in seconds since 1970. """
    left_bytes: int = 0
    """ What they held of the GPU when they were last asked to leave it. """
    held_bytes: int = 0
    """ What they hold in the host's memory, while they are parked. """
    problem: str = ""
    """ refused or lost: why, as one word. """
    reason: str = ""
    """ The same as a sentence. """
    keeps_room: bool = False
    """ refused: others need the room, and asking again has been of no use. """
    away_seconds: float = 0.0
    """ How long they were away when they came back last. """
    total_seconds: float = 0.0
    """ How long they were away in all; grows when they come back. """

    @property
    def is_asked(self) -> bool:
        """Whether the processes shall leave."""
        return self.number % 2 == 1

    def clear(self) -> None:
        """Forget the result of the wishes."""
        self.state, self.held_bytes, self.problem, self.reason, self.keeps_room = "", 0, "", "", False

    def ask(self, away: bool) -> bool:
        """Wish that the processes leave or come back; return whether that is new."""
        if away == self.is_asked:
            return False
        self.number = (self.number + 1) % _NUMBERS
        return True


@dataclass(frozen=True)
class GpuParking:
    """What is free on one GPU and kept for hp, in bytes, and how often tenants have moved."""

    free_bytes: int | None = None
    """ As the driver said last; None: it was not asked, because no slot parks. """
    reserve_bytes: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    """ How often tenants have left, returned, refused, and were lost. """
    seconds: Mapping[str, float] = field(default_factory=dict)
    """ How long leaving and returning took in all. """

    def at_rest(self) -> "GpuParking":
        """Return the same while no slot parks."""
        return replace(self, free_bytes=None, reserve_bytes=0)
