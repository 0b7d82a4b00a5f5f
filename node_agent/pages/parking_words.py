"""What a be client answers to the agent's wish that it leave the GPU's memory: one word of its record."""

from functools import lru_cache
from typing import NamedTuple

from orion.hook.layout import ParkingReason, ParkingState

_STATES = frozenset(ParkingState)
_REASONS = frozenset(ParkingReason)


class ParkingAnswer(NamedTuple):
    """A client's answer, as `orion_pack_parking` packs it."""

    number: int
    """ The wish that it answers: a value of the grant's word `park`. """
    result: int
    """ The CUresult that explains the reason; 0: none. """
    reason: ParkingReason
    state: ParkingState

    @classmethod
    @lru_cache(maxsize=1024)
    def of(cls, word: int) -> "ParkingAnswer":
        """Return the answer in a word. Any word is possible: an undefined value counts as no answer."""
        state, reason = word & 0xFF, word >> 8 & 0xFF
        return cls(
            word >> 32 & 0xFFFFFFFF,
            word >> 16 & 0xFFFF,
            ParkingReason(reason) if reason in _REASONS else ParkingReason.NONE,
            ParkingState(state) if state in _STATES else ParkingState.RUNNING,
        )
