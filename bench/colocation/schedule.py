"""The arrivals of a run's requests: drawn once for each hp and round, and replayed under every system.

A closed loop has no arrivals; it lasts as long as the wanted number of iterations takes on an unshared GPU.
"""

import hashlib
import itertools
from dataclasses import dataclass

from orion.bench.arrivals import arrivals_with_lead
from orion.bench.colocation.scenario import Arrivals, Closed, Paced, Trace
from orion.errors import Exhausted


@dataclass(frozen=True)
class Schedule:
    """The arrivals and the measured window of a run."""

    arrivals: list[float] | None
    """Seconds from the start of the run, ascending; None: a closed loop."""
    rate: float | None
    """Intended requests a second."""
    lead: float
    """Length of the lead-in in seconds; the measured window begins at its end."""
    end: float
    """End of the measured window: the last arrival, or the end of a closed loop."""


def rate_of(arrivals: Arrivals, capacity: float) -> float | None:
    """Return requests a second.

    Args:
        arrivals: The scenario's arrivals.
        capacity: Requests a second of hp's closed loop, alone.

    Raises:
        Exhausted: The rate is not below the capacity: the queue would grow without limit.
    """
    if isinstance(arrivals, Closed):
        return None
    rate = arrivals.rate
    if arrivals.load is not None:
        rate = arrivals.load * capacity
    elif rate is None and isinstance(arrivals, Trace):
        rate = len(arrivals.gaps) / sum(arrivals.gaps)
    if rate is None or rate >= capacity:
        raise Exhausted(
            f"hp gets {rate or 0:.1f} requests/s, but can serve only {capacity:.1f} on a GPU of its own; "
            "give a lower rate, or a load"
        )
    return rate


def schedule(arrivals: Arrivals, rate: float | None, requests: int, lead: float, step: float, seed: str) -> Schedule:
    """Plan a run.

    Args:
        arrivals: The scenario's arrivals.
        rate: Requests a second, from `rate_of`.
        requests: Minimum number of measured requests.
        lead: Length of the lead-in in seconds.
        step: Seconds of one request on an unshared GPU; it determines the length of a closed loop.
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
    """Return the expected duration of a run in seconds, for plans and progress bars; arguments as for `schedule`."""
    if isinstance(arrivals, Closed):
        return lead + requests * step
    rate = arrivals.rate or (arrivals.load or 0.5) / step
    if isinstance(arrivals, Trace) and arrivals.rate is None and arrivals.load is None:
        rate = len(arrivals.gaps) / sum(arrivals.gaps)
    return lead + requests / rate
