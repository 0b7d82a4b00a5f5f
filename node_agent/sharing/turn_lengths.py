"""How long turns and cycles are.

In a longer cycle handovers cost less, and the shares of a second vary more. A piece of work that does not fit into what
is left of a turn is not begun, or it runs on into the turn of another slot, and the GPU alternates between the two. So
the turn of a slot with long pieces lasts as long as a whole number of them, and the cycle is long enough for one. The
difference stays in the slot's balance, and a later turn holds one piece more or less.

Pieces that would need a longer cycle than `_LONGEST_CYCLE_NS` do not fit into turns. Then the slot that runs on is in
debt, and has fewer turns.
"""

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass

from orion.node_agent.sharing.accounts import Accounts, is_full

_LONGEST_CYCLE_NS = 60_000_000
""" Cycles are not made longer than this for long pieces. """
_LONGEST_SET_NS = 250_000_000
""" Cycles are not longer than this for the turns that a node's settings ask for, unless all slots have such turns. """
_ROOM = 1.3
""" A cycle is longer than the shortest turns of its slots by this factor, so that corrections seldom make a turn too
short. """
_ROOM_OF_PIECES = 1.15
""" The same for turns that hold one piece. """
_SHORT_NS = 1_000_000
""" Shorter pieces need no whole number. """


@dataclass(frozen=True)
class Mode:
    """How contexts share a GPU, and what follows for turns if the node's settings say nothing else.

    Args:
        cycle_ns: the time in which each slot has one turn.
        average_turn_ns: with many slots the cycle is so long that turns have this length on average.
        handover_ns: the part of a turn in which the GPU does nothing for the slot, after a turn of another slot, if
            nothing is known. Turns are longer by it, and it is not charged.
        early_ns: clients may launch so long before their turns begin. Then less time is lost.
    """

    cycle_ns: int
    average_turn_ns: int
    handover_ns: int
    early_ns: int


ALTERNATING = Mode(20_000_000, 5_600_000, 200_000, 150_000)
""" Time-slicing. A handover takes 0.15 to 0.3 ms on an H100 and an H200. With clients that launched early, the
throughputs of three slots added up to 0.957 instead of 0.946, and to 0.953 with twice this time. Those of five slots
added up to 0.932 with turns of 5 ms on average and to 0.942 with 5.6 ms, on another host. """
TOGETHER = Mode(28_000_000, 5_000_000, 10_000, 50_000)
""" MPS. On an H200 two slots had 0.978 of their throughputs alone with this cycle, 0.969 with 10 ms, and 0.956 with
4 ms; the shares of a second were off by 0.6, 0.8 and 0.9 points. docs/results/quotas.md has all these figures. """


@dataclass(frozen=True)
class TurnLengths:
    """What the node's settings say.

    Args:
        shortest_ns: a slot whose turn would be shorter has none, until it is owed enough.
        longest_ns: the turn of the slot that is due the most; 0: so long that the cycle has its usual length.
    """

    shortest_ns: int = 800_000
    longest_ns: int = 0

    @classmethod
    def of(cls, shortest_ms: float, longest_ms: float | None) -> "TurnLengths":
        """Return the lengths that settings ask for."""
        return cls(round(shortest_ms * 1e6), round((longest_ms or 0) * 1e6))

    def cycle(self, mode: Mode, shares: Mapping[str, float], pieces: Mapping[str, int], handover_ns: float) -> float:
        """Return the length of a cycle.

        Args:
            mode: how contexts share the GPU.
            shares: what each slot with a turn is due, by slot.
            pieces: the longest piece of each slot.
            handover_ns: what each turn loses.
        """
        usual = self._as_set(shares) if self.longest_ns else self._usual(mode, shares, pieces, handover_ns)
        return max(usual, _ROOM * len(shares) * (self.shortest_ns + handover_ns))

    def _as_set(self, shares: Mapping[str, float]) -> float:
        """Return the cycle in which the longest turn is as long as set. With limits alone, it may be shorter."""
        return min(self.longest_ns / max(shares.values()), max(_LONGEST_SET_NS, len(shares) * self.longest_ns))

    @staticmethod
    def _usual(mode: Mode, shares: Mapping[str, float], pieces: Mapping[str, int], handover_ns: float) -> float:
        needed = [
            (_ROOM_OF_PIECES * pieces[name] + handover_ns) / share
            for name, share in shares.items()
            if pieces[name] > _SHORT_NS and len(shares) > 1
        ]
        fitting = [each for each in needed if each < _LONGEST_CYCLE_NS]
        return max(mode.cycle_ns, len(shares) * mode.average_turn_ns, *fitting)


def next_lengths(
    accounts: Accounts,
    shares: Mapping[str, float],
    corrections: Mapping[str, float],
    room_ns: float,
    shortest_ns: float,
) -> dict[str, int]:
    """Return the lengths of the next turns, with what each handover loses; a slot without one has no turn.

    Args:
        accounts: of the slots; each learns how long its turns are usually.
        shares: what each slot is due, as a part of ``room_ns``.
        corrections: by how much each turn is longer for what the slot is owed, in nanoseconds.
        room_ns: the time for these turns: the cycle, or what windows leave of it.
        shortest_ns: a slot whose turn would be shorter has none, until it is owed enough.
    """
    lost = {name: accounts[name].handover_ns for name in shares}
    full = is_full(shares)
    whole = room_ns - sum(lost.values()) if full else room_ns
    lengths = {}
    for name, share in shares.items():
        account, usual = accounts[name], share * whole
        account.usual_turn_ns = usual
        length, piece = usual + corrections[name], account.piece_ns
        allowed, once = account.allowance(shortest_ns)
        length, usual = min(length, allowed), min(usual, allowed)
        if length < piece <= usual:  # a part of a piece would run on
            length = piece if length > piece / 2 else 0.0
        if length >= (allowed if once else shortest_ns):
            lengths[name] = length
    if full and not any(accounts[name].ceiling >= 1 for name in lengths):
        # Those without a limit are in debt. But what limits leave of the cycle is nobody else's.
        free = [name for name in shares if accounts[name].ceiling >= 1]
        able = free or [name for name in shares if accounts[name].allowance(shortest_ns)[0] >= shortest_ns]
        left = room_ns - sum([length + lost[name] for name, length in lengths.items()])
        for name in sorted(able, key=lambda name: corrections[name])[-1:]:
            # A piece that is longer would run on into the turns of others, to which the debt is owed.
            if not lengths or (free and left - lost[name] >= max(shortest_ns, accounts[name].piece_ns)):
                lengths[name] = shortest_ns  # it takes up what is left
    usable = max(0.0, room_ns - sum([lost[name] for name in lengths]))
    growing = {name for name in lengths if full and accounts[name].ceiling >= 1}
    fitted = _fitted(lengths, growing, usable)
    pieces = {name: accounts[name].piece_ns for name in fitted}
    if len(shares) > 1 and max(pieces.values(), default=0) > _SHORT_NS:
        fits = {name for name, piece in pieces.items() if piece <= accounts[name].usual_turn_ns}
        limited = {name for name in fitted if accounts[name].ceiling < 1}
        fitted = in_whole_pieces(fitted, pieces, usable, fits, limited)
    return {name: round(length + lost[name]) for name, length in fitted.items()}


def _fitted(lengths: Mapping[str, float], growing: Set[str], usable: float) -> dict[str, float]:
    """Return lengths that are no longer than ``usable`` together; those of ``growing`` take up what is left."""
    total, grown = sum(lengths.values()), sum([lengths[name] for name in growing])
    if total > usable or not grown:
        scale = min(1.0, usable / total) if total else 1.0
        return {name: length * scale for name, length in lengths.items()}
    scale = (usable - total + grown) / grown
    return {name: length * scale if name in growing else length for name, length in lengths.items()}


def in_whole_pieces(
    lengths: Mapping[str, float],
    pieces: Mapping[str, int],
    usable_ns: float,
    fits: Set[str] = frozenset(),
    limited: Set[str] = frozenset(),
) -> dict[str, float]:
    """Return lengths of turns that hold whole pieces; the turns of the other slots take up the difference.

    Args:
        lengths: of the turns, by slot, as each slot is due and owed.
        pieces: the longest piece of each slot.
        usable_ns: what all turns may have together.
        fits: slots whose turns hold one piece at least.
        limited: slots whose turns take up no time, because a limit allows no more.

    Returns:
        the lengths; the same ones if the other slots would have no time left.
    """
    for rounded, names in ((round, lengths.keys()), (math.floor, fits)):
        whole = {
            name: max(1, rounded(length / pieces[name])) * float(pieces[name])
            for name, length in lengths.items()
            if pieces[name] > _SHORT_NS and name in names and (pieces[name] < length or name in fits)
        }
        before, after = sum(lengths[name] for name in whole), sum(whole.values())
        others = sum(lengths.values()) - before
        left = min(others + before - after, usable_ns - after)
        if whole and left >= 0 and (not others or left >= others / 2):
            rest = {name: length for name, length in lengths.items() if name not in whole}
            return _fitted(rest, rest.keys() - limited, left) | whole
    return dict(lengths)
