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
        (first, last), (begin, end) = self.turn, self.next
        first = max(0, first - self.early_ns) if first < last else first
        begin = max(0, begin - self.early_ns) if begin < end else begin
        return first, last, begin, end, self.cycle_ns, self.until_ns

    def has_turn(self, now_ns: int) -> bool:
        """Return whether the slot has the turn."""
        (first, last), (begin, end) = self.turn, self.next
        return first <= now_ns < last or (begin <= now_ns and (now_ns - begin) % self.cycle_ns < end - begin)

    def passed(self, begin_ns: int, end_ns: int) -> tuple[int, int]:
        """Return how much of an interval lies in the slot's turns, and how many of them begin in it."""
        (first, last), (begin, end) = self.turn, self.next
        time = max(0, min(end_ns, last) - max(begin_ns, first))
        begun = int(first < last and begin_ns <= first < end_ns)
        if begin < end_ns and begin < end:
            time += self._repeated(end_ns)
            begun += self._repetitions(end_ns)
            if begin < begin_ns:
                time -= self._repeated(begin_ns)
                begun -= self._repetitions(begin_ns)
        return time, begun

    def time(self, begin_ns: int, end_ns: int) -> int:
        """Return how much of an interval lies in the slot's turns."""
        return self.passed(begin_ns, end_ns)[0]

    def begun(self, begin_ns: int, end_ns: int) -> int:
        """Return how many of the slot's turns begin in an interval."""
        return self.passed(begin_ns, end_ns)[1]

    def _repetitions(self, now_ns: int) -> int:
        """Return how many of the repeated turns have begun before ``now_ns``, which is after the begin of the first."""
        return (now_ns - 1 - self.next[0]) // self.cycle_ns + 1

    def _repeated(self, now_ns: int) -> int:
        """Return the time in the repeated turns before ``now_ns``, which is after the begin of the first."""
        begin, end = self.next
        cycles, rest = divmod(now_ns - begin, self.cycle_ns)
        return cycles * (end - begin) + min(rest, end - begin)
