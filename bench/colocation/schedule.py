"""When the requests of a run arrive: made once for an hp and a round, and replayed under every system.

A closed loop has no arrivals; its length is that of its wanted iterations on a GPU of its own.
"""

import hashlib
import itertools
from dataclasses import dataclass

from orion.bench.arrivals import arrivals_with_lead
from orion.bench.colocation.scenario import Arrivals, Closed, Paced, Trace


class TooFast(ValueError):
    """hp is asked for more than the GPU can give it; one sentence."""


@dataclass(frozen=True)
class Schedule:
    """What hp is told to do."""

    arrivals: list[float] | None
    """Seconds from the run's begin, ascending; None: a closed loop."""
    rate: float | None
    """Requests a second that were aimed at."""
    lead: float
    """Seconds before anything counts."""
    end: float
    """End of what counts: the last arrival."""


def rate_of(arrivals: Arrivals, capacity: float) -> float | None:
    """Return requests a second.

    Args:
        arrivals: Of the scenario.
        capacity: Requests a second of hp's closed loop, alone.

    Raises:
        TooFast: The rate is not below the capacity: a queue would grow for as long as one looks.
    """
    if isinstance(arrivals, Closed):
        return None
    rate = arrivals.rate
    if arrivals.load is not None:
        rate = arrivals.load * capacity
    elif rate is None and isinstance(arrivals, Trace):
        rate = len(arrivals.gaps) / sum(arrivals.gaps)
    if rate is None or rate >= capacity:
        raise TooFast(
            f"hp is asked for {rate or 0:.1f} requests/s and can serve {capacity:.1f} on a GPU of its own; "
            "give a lower rate, or a load"
        )
    return rate


def schedule(arrivals: Arrivals, rate: float | None, requests: int, lead: float, step: float, seed: str) -> Schedule:
    """Plan a run.

    Args:
        arrivals: Of the scenario.
        rate: Of `rate_of`.
        requests: How many count, at least.
        lead: Seconds before anything counts.
        step: Seconds of one request on a GPU of its own; the length of a closed loop comes from it.
        seed: Equal seeds give equal arrivals, on every machine.
    """
    if isinstance(arrivals, Closed) or rate is None:
        return Schedule(None, None, lead, lead + requests * step)
    if isinstance(arrivals, Paced) and arrivals.kind == "poisson":
        number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8])
        times, end = arrivals_with_lead(rate, requests, lead, number)
        return Schedule(times, rate, lead, end)
    gaps = arrivals.gaps if isinstance(arrivals, Trace) else [1.0]
    stretch = len(gaps) / sum(gaps) / rate
    times = []
    counted = 0
    for time in itertools.accumulate(gap * stretch for gap in itertools.cycle(gaps)):
        times.append(time)
        counted += time >= lead
        if counted == requests:
            break
    return Schedule(times, rate, lead, times[-1])


def expected_seconds(arrivals: Arrivals, requests: int, lead: float, step: float) -> float:
    """Return about how long a run takes, for plans and progress bars; `step` as in `schedule`."""
    if isinstance(arrivals, Closed):
        return lead + requests * step
    rate = arrivals.rate or (arrivals.load or 0.5) / step
    if isinstance(arrivals, Trace) and arrivals.rate is None and arrivals.load is None:
        rate = len(arrivals.gaps) / sum(arrivals.gaps)
    return lead + requests / rate
