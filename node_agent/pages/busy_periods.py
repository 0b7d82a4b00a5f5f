"""When an hp client was busy lately, from the busy periods in its record page.

A client may write anything into its page. The periods that this module returns never overlap, and they are within the
time that the caller asks for. So a client can claim no more than to have been busy all the time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from orion.hook import layout


@dataclass(frozen=True, slots=True)
class BusyPeriods:
    """When a client was busy.

    Args:
        since_ns: `periods` has all periods since then.
        periods: begin and end of each, the latest first; they do not overlap.
    """

    since_ns: int
    periods: tuple[tuple[int, int], ...] = ()

    def since(self, since_ns: int) -> "BusyPeriods":
        """Return what is known of the time since then."""
        inside = tuple([(max(begin, since_ns), end) for begin, end in self.periods if end > since_ns])
        return BusyPeriods(max(self.since_ns, since_ns), inside)


@dataclass(frozen=True, slots=True)
class PeriodWords:
    """Words of a record page, in the order in which the agent must read them; orion/pages.h says why.

    Args:
        open_ns: when the period began that has not ended; 0: there is none.
        count: of closed periods.
        ring: begin and end of the last ones.
        later_count: the count, read again.
    """

    open_ns: int
    count: int
    ring: Sequence[int]
    later_count: int

    def between(self, since_ns: int, now_ns: int, most: int) -> BusyPeriods:
        """Return the periods between two times.

        The search goes back in time. A period that overlaps a later one, or is half overwritten, ends the search. So
        does 0, because an earlier hook writes no periods.

        Args:
            since_ns: the begin of the time.
            now_ns: the end of the time.
            most: how many closed periods are read at most.
        """
        found, until = [], now_ns
        if 0 < self.open_ns < now_ns:
            until = max(self.open_ns, since_ns)
            found.append((until, now_ns))
        first = max(0, self.count - most, self.later_count - layout.BUSY_PERIODS + 1)
        whole = first == 0
        for number in range(self.count - 1, first - 1, -1):
            at = number % layout.BUSY_PERIODS * 2
            begin, end = self.ring[at : at + 2]
            sound = 0 < begin <= end
            if sound and begin >= until:  # it began after `now_ns`, or was still open when that was read
                continue
            whole = sound and (end <= until or not found)
            if not whole or end <= since_ns:
                break
            found.append((max(begin, since_ns), min(end, until)))
            until, whole = found[-1][0], first == 0
        return BusyPeriods(since_ns if whole else until, tuple(found))
