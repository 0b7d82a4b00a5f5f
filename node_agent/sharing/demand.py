"""What a slot wanted and did since the previous check, as the pages of its clients say."""

from typing import NamedTuple


class Demand(NamedTuple):
    """A slot at one check.

    Args:
        request: the part of the time that the slot is sure to get; 0: none.
        limit: the part of the time that hp leaves that it gets at most.
        reported_ns: GPU time that its clients completed since the previous check.
        piece_ns: the longest work of its clients that no stop can interrupt.
        launched: whether its clients launched since the previous check.
        waiting: whether work waits or is in flight now.
        clients: how many it has.
        ceiling: the part of all time that it gets at most.
        ran_on_ns: what of the reported time was after its turns.
    """

    request: float = 0.0
    limit: float = 1.0
    reported_ns: int = 0
    piece_ns: int = 0
    launched: bool = False
    waiting: bool = False
    clients: int = 1
    ceiling: float = 1.0
    ran_on_ns: int = 0
