"""For how long, and when, an hp client closed be's gate: its busy periods, and the linger behind each of them."""

from orion.node_agent.pages.busy_periods import BusyPeriods
from orion.node_agent.sharing.busy_union import Busy, length_ns, merged


def closed(busy: Busy, read: BusyPeriods, linger_ns: int, lingers: bool, since_ns: int, now_ns: int) -> Busy:
    """Return what happened between two times.

    Where the page holds too few periods, those that are missing have lingers as the others.

    Args:
        busy: for how long the client was busy meanwhile, and when.
        read: its periods, from a linger before that on.
        linger_ns: its linger.
        lingers: it lingers now.
        since_ns: the begin of the time.
        now_ns: the end of the time.
    """
    shown_ns = length_ns(busy.periods.periods)
    spans = [(begin, end + linger_ns) for begin, end in read.periods]
    if lingers:
        unread = since_ns if read.since_ns <= since_ns else now_ns - linger_ns
        spans.append((read.periods[0][1] if read.periods else unread, now_ns))
    known = tuple(merged((max(begin, since_ns), min(end, now_ns)) for begin, end in spans))
    lingered = length_ns(known) - shown_ns
    if read.since_ns > since_ns and shown_ns:
        lingered = round(lingered * busy.busy_ns / shown_ns)
    return Busy(busy.busy_ns + lingered, BusyPeriods(busy.periods.since_ns, known))
