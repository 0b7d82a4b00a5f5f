"""Turns of a GPU's slots around the windows of jobs that use several GPUs (joint.py): pure functions of times.

A slot has one turn in a joint cycle, so its turn lies in one of the gaps between windows. With fewer slots than gaps a
gap is nobody's. A cycle of a GPU begins with its first window, so that no gap goes on in the next cycle.

Joint cycles begin at given times. What happens before, such as an early end of a turn, moves the turns of the gap that
is under way.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from orion.node_agent.sharing.joint import Window

Turn = tuple[int, int]
""" Begin and end in nanoseconds. """


def clipped(turns: Mapping[str, Turn], end_ns: int) -> dict[str, Turn]:
    """Return turns that end at ``end_ns`` at the latest."""
    return {name: (min(begin, end_ns), min(end, end_ns)) for name, (begin, end) in turns.items()}


def origin(windows: Iterable[Window]) -> float:
    """Return where in a joint cycle the cycle of a GPU begins: 0 to 1."""
    return min((window.begin for window in windows if window.length > 0), default=0.0)


def gaps(windows: Iterable[Window]) -> list[Window]:
    """Return the times of a GPU's cycle that no window takes, as parts of the cycle after its begin."""
    first = origin(windows)
    taken = sorted((each.begin - first, each.end - first) for each in set(windows) if each.length > 0)
    begins = [0.0, *(end for _, end in taken)]
    ends = [*(begin for begin, _ in taken), 1.0]
    return [Window(begin, end) for begin, end in zip(begins, ends, strict=True) if end > begin]


def fill(spaces: Sequence[Turn], lengths: Mapping[str, int], growing: Set[str], shortest_ns: float) -> dict[str, Turn]:
    """Lay turns into gaps.

    Args:
        spaces: the gaps.
        lengths: of the turns, by slot, in the order of their turns. A turn that fits into no gap is shorter.
        growing: slots whose turns take up what is left.
        shortest_ns: a slot whose turn would be shorter has none.
    """
    left = [end - begin for begin, end in spaces]
    inside: list[dict[str, int]] = [{} for _ in spaces]
    for name in sorted(lengths, key=lambda name: -lengths[name]) if spaces else ():
        index = max(range(len(left)), key=left.__getitem__)
        length = min(lengths[name], left[index])
        if length >= min(lengths[name], shortest_ns):
            inside[index][name] = length
            left[index] -= length
    turns: dict[str, Turn] = {}
    for (begin, end), each in zip(spaces, inside, strict=True):
        turns |= _in_a_row({name: each[name] for name in lengths if name in each}, growing, begin, end)
    return turns


def _in_a_row(lengths: Mapping[str, int], growing: Set[str], begin_ns: int, end_ns: int) -> dict[str, Turn]:
    """Return turns one after the other; those of ``growing`` take up what is left in proportion."""
    spare = end_ns - begin_ns - sum(lengths.values())
    grown = sum(length for name, length in lengths.items() if name in growing)
    turns, at = {}, begin_ns
    for name, length in lengths.items():
        longer = spare * length // grown if spare > 0 and name in growing and grown else 0
        turns[name] = at, min(end_ns, at + length + longer)
        at = turns[name][1]
    return turns


@dataclass(frozen=True)
class UnderWay:
    """The turns of a GPU until its next joint cycle.

    Args:
        turns: of all slots, in the cycle that is under way.
        windows: the slots whose turns do not move, since they are windows.
        wanting: the other slots that want the GPU, those first that are owed the most.
        growing: slots whose turns may be longer.
    """

    turns: Mapping[str, Turn]
    windows: Collection[str]
    wanting: Sequence[str]
    growing: Set[str]

    def closed_up(self, now_ns: int, end_ns: int, first: tuple[str, int] | None = None) -> dict[str, Turn]:
        """Return the turns such that nobody's time of the gap under way is some slot's.

        Args:
            now_ns: the present time.
            end_ns: when the next joint cycle begins.
            first: a slot that comes next in the gap under way, and the length of its turn.
        """
        turns = clipped(self.turns, end_ns)
        windows = {name: turns[name] for name in self.windows if name in turns}
        later = {name: _outside(turns[name], windows.values()) for name in self.wanting if name in turns}
        begin, end = _gap(now_ns, end_ns, sorted(windows.values()))
        here = sorted((turn, name) for name, turn in later.items() if max(turn[0], begin) < min(turn[1], end))
        moved = {name: min(end, turn[1]) - max(turn[0], begin) for turn, name in here}
        if first is not None:
            holder = [name for turn, name in here if turn[0] <= begin and name != first[0]][:1]
            moved = {**{name: moved[name] for name in holder}, first[0]: first[1]} | {
                name: length for name, length in moved.items() if name != first[0]
            }
        if not moved:
            free = [name for name in self.wanting if name in self.growing and later.get(name, (0, 0))[0] < end]
            moved = dict.fromkeys(free[:1], end - begin)
        closed = windows | later | _in_a_row(moved, self.growing, begin, end)
        # A turn under way keeps its begin, so that no second handover is expected.
        return closed | {name: (turn[0], closed[name][1]) for turn, name in here if turn[0] <= begin == now_ns}


def _outside(turn: Turn, windows: Iterable[Turn]) -> Turn:
    """Return what is left of a turn before or after the windows that it overlaps."""
    begin, end = turn
    for first, last in sorted(windows):
        if first < end and begin < last:
            begin, end = (begin, first) if begin < first else (last, max(end, last))
    return begin, end


def _gap(now_ns: int, end_ns: int, windows: Sequence[Turn]) -> Turn:
    """Return the gap under way or the next one, until ``end_ns`` at most; windows by their begin."""
    begin = now_ns
    for first, last in windows:
        if first <= begin < last:
            begin = last
    return begin, min([end_ns, *(first for first, last in windows if begin < first < last)])
