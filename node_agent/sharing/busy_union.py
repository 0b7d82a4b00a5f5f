"""For how long at least one of several hp clients was busy: a time in which two clients were busy counts once.

Each client reports the sum of its busy periods and the last of these periods. The periods decide if they reach back
far enough. If a client had more periods than its page holds, the last ones are a sample for its slot. An earlier hook
writes no periods. Samples, and clients without periods, count as independent of the rest.

Whatever the clients of a slot write, the result is at least what it would be without them, and at most the time that
has passed. So the clients of a slot gain nothing that they would not gain if they claimed to be busy all the time. A
sample for the clients of all slots would not have this property.

Rejected: the sum. Processes that serve the same requests are busy at the same times. Beside such processes be slots
got more than their limit, and an hp slot that contains them got less than its own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from orion.node_agent.pages.busy_periods import BusyPeriods

_TOLERANCE_NS = 100_000
""" The agent does not read busy time and periods at the same moment. """


@dataclass(frozen=True, slots=True)
class Busy:
    """For how long a client says that it was busy between two times, and when."""

    busy_ns: int
    periods: BusyPeriods


def union_ns(slots: Iterable[Sequence[Busy]], since_ns: int, now_ns: int) -> int:
    """Return for how long at least one of the clients was busy between two times; each slot has at least one."""
    elapsed_ns, slots = now_ns - since_ns, list(slots)
    said = [min(each.busy_ns, elapsed_ns) for clients in slots for each in clients]
    if len(said) <= 1 or elapsed_ns <= 0:
        return sum(said)
    known: list[tuple[int, int]] = []
    parts: list[float] = []
    for clients in slots:
        sampled: list[Busy] = []
        for each in clients:
            is_charged = is_sound(each)
            if is_charged and each.periods.since_ns <= since_ns:
                known += each.periods.periods
            elif is_charged and each.periods.periods:
                sampled.append(each)
            else:
                parts.append(each.busy_ns)
        parts += _sampled_ns(sampled)
    parts.append(length_ns(known))
    idle = prod(1 - min(1.0, part / elapsed_ns) for part in parts)
    return max(*said, round(elapsed_ns * (1 - idle)))


def is_sound(each: Busy) -> bool:
    """Return whether the client was busy for as long as its periods say."""
    return length_ns(each.periods.periods) <= each.busy_ns + _TOLERANCE_NS


def _sampled_ns(clients: Sequence[Busy]) -> list[float]:
    """Return the union of clients of one slot whose periods are a sample; without a sample, the time of each client.

    The union is assumed to be the same part of the sum as in the latest time, of which all periods are known.
    """
    if not clients:
        return []
    since = max(each.periods.since_ns for each in clients)
    shown = [(max(begin, since), end) for each in clients for begin, end in each.periods.periods if end > since]
    total = sum(end - begin for begin, end in shown)
    said: list[float] = [each.busy_ns for each in clients]
    return [sum(said) * length_ns(shown) / total] if total else said


def length_ns(periods: Iterable[tuple[int, int]]) -> int:
    """Return how long the union of periods is."""
    return sum([end - begin for begin, end in merged(periods)])


def merged(periods: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of periods in order of time, without empty ones."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(periods):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif begin < end:
            found.append((begin, end))
    return found
