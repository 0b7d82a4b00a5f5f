"""A slot's turns, as its grant has them: `turn_begin_ns` to `plan_until_ns` in hook/include/orion/pages.h."""

from typing import NamedTuple


class Plan(NamedTuple):
    """A slot's turns; times in nanoseconds of CLOCK_MONOTONIC.

    Args:
        turn: begin and end of its turn in the cycle that is under way.
        next: begin and end of its turn in the next cycle; the same if it has none.
        cycle_ns: the time after which the next turn repeats.
        until_ns: when the plan ends.
        early_ns: the slot may launch so long before its turns begin. Until its work reaches the GPU, that of the slot
            before it is complete, or about to be.
    """

    turn: tuple[int, int]
    next: tuple[int, int]
    cycle_ns: int
    until_ns: int
    early_ns: int = 0

    @property
    def words(self) -> tuple[int, ...]:
        """The words of the grant, in their order."""
        (first, last), (begin, end), cycle_ns, until_ns, early_ns = self
        first -= early_ns if early_ns < first < last else 0
        begin -= early_ns if early_ns < begin < end else 0
        return first, last, begin, end, cycle_ns, until_ns

    def has_turn(self, now_ns: int) -> bool:
        """Return whether the slot has the turn."""
        (first, last), (begin, end), cycle_ns, _, _ = self
        return first <= now_ns < last or (begin <= now_ns and (now_ns - begin) % cycle_ns < end - begin)

    def passed(self, begin_ns: int, end_ns: int) -> tuple[int, int]:
        """Return how much of an interval lies in the slot's turns, and how many of them begin in it."""
        (first, last), (begin, end), _, _, _ = self
        time = begun = 0
        if first < last and begin_ns < last and first < end_ns:
            begun = begin_ns <= first
            time = (last if last < end_ns else end_ns) - (first if begun else begin_ns)
        if begin < end_ns and begin < end:
            later, later_begun = self._repeated(end_ns)
            before, before_begun = self._repeated(begin_ns) if begin < begin_ns else (0, 0)
            time, begun = time + later - before, begun + later_begun - before_begun
        return time, begun

    def time(self, begin_ns: int, end_ns: int) -> int:
        """Return how much of an interval lies in the slot's turns."""
        return self.passed(begin_ns, end_ns)[0]

    def begun(self, begin_ns: int, end_ns: int) -> int:
        """Return how many of the slot's turns begin in an interval."""
        return self.passed(begin_ns, end_ns)[1]

    def _repeated(self, now_ns: int) -> tuple[int, int]:
        """Return the time in the repeated turns before ``now_ns``, and how many have begun; the first one has."""
        begin, end = self.next
        cycles, rest = divmod(now_ns - begin, self.cycle_ns)
        return cycles * (end - begin) + min(rest, end - begin), cycles + (rest > 0)
