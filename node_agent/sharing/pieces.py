"""Fits turns to work that no stop can interrupt.

A piece of work that does not fit into what is left of a turn is not begun, or it runs on into the turn of another slot.
So the turn of a slot with long pieces lasts as long as a whole number of them. The difference stays in its balance, and
a later turn holds one piece more or less. A slot whose pieces hardly fit into its turn once is left alone: its turns
would vary too much.
"""

from collections.abc import Mapping

_SHORT_NS = 1_000_000
""" Shorter pieces need no whole number. """
_MOST_OF_A_TURN = 0.8


def in_whole_pieces(lengths: Mapping[str, float], pieces: Mapping[str, int], usable_ns: float) -> dict[str, float]:
    """Return lengths of turns that hold whole pieces; the turns of the other slots take up the difference.

    Args:
        lengths: of the turns, by slot, as each slot is due and owed.
        pieces: the longest piece of each slot.
        usable_ns: what all turns may have together.

    Returns:
        the lengths; the same ones if the other slots would have no time left.
    """
    whole = {
        name: round(length / pieces[name]) * float(pieces[name])
        for name, length in lengths.items()
        if _SHORT_NS < pieces[name] < _MOST_OF_A_TURN * length
    }
    before, after = sum(lengths[name] for name in whole), sum(whole.values())
    others = sum(lengths.values()) - before
    left = min(others + before - after, usable_ns - after)
    if not whole or left < 0 or (others and left < others / 2):
        return dict(lengths)
    return {name: whole.get(name, length * left / others if others else length) for name, length in lengths.items()}
