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
        return *self._opened(self.turn), *self._opened(self.next), self.cycle_ns, self.until_ns

    def _opened(self, turn: tuple[int, int]) -> tuple[int, int]:
        begin, end = turn
        return (max(0, begin - self.early_ns), end) if begin < end else turn

    def has_turn(self, now_ns: int) -> bool:
        """Return whether the slot has the turn."""
        return bool(self.time(now_ns, now_ns + 1))

    def time(self, begin_ns: int, end_ns: int) -> int:
        """Return how much of an interval lies in the slot's turns."""
        first = min(end_ns, self.turn[1]) - max(begin_ns, self.turn[0])
        return max(0, first) + self._repeated(end_ns) - self._repeated(begin_ns)

    def begun(self, begin_ns: int, end_ns: int) -> int:
        """Return how many of the slot's turns begin in an interval."""
        first = self.turn[0] < self.turn[1] and begin_ns <= self.turn[0] < end_ns
        return first + self._repetitions(end_ns) - self._repetitions(begin_ns)

    def _repetitions(self, now_ns: int) -> int:
        """Return how many of the repeated turns have begun before ``now_ns``."""
        begin, end = self.next
        return (now_ns - 1 - begin) // self.cycle_ns + 1 if begin < now_ns and begin < end else 0

    def _repeated(self, now_ns: int) -> int:
        """Return the time in the repeated turns before ``now_ns``."""
        begin, end = self.next
        if now_ns <= begin or end <= begin:
            return 0
        cycles, rest = divmod(now_ns - begin, self.cycle_ns)
        return cycles * (end - begin) + min(rest, end - begin)
