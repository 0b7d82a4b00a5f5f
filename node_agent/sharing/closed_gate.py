"""For how long, and when, an hp client closed be's gate: its busy periods, and the linger behind each of them."""

from orion.node_agent.pages.busy_periods import BusyPeriods
from orion.node_agent.sharing.busy_union import Busy, length_ns, merged


def closed(used_ns: int, read: BusyPeriods, linger_ns: int, lingers: bool, since_ns: int, now_ns: int) -> Busy:
    """Return what happened between two times.

    Where the page holds too few periods, those that are missing have lingers as the others.

    Args:
        used_ns: for how long the client was busy meanwhile.
        read: its periods, from a linger before that on.
        linger_ns: its linger.
        lingers: it lingers now.
        since_ns: the begin of the time.
        now_ns: the end of the time.
    """
    busy_ns = length_ns(read.since(since_ns).periods)
    spans = [(begin, end + linger_ns) for begin, end in read.periods]
    if lingers:
        unread = since_ns if read.since_ns <= since_ns else now_ns - linger_ns
        spans.append((read.periods[0][1] if read.periods else unread, now_ns))
    known = tuple(merged((max(begin, since_ns), min(end, now_ns)) for begin, end in spans))
    lingered = length_ns(known) - busy_ns
    if read.since_ns > since_ns and busy_ns:
        lingered = round(lingered * used_ns / busy_ns)
    return Busy(used_ns + lingered, BusyPeriods(max(read.since_ns, since_ns), known))
