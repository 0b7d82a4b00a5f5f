"""When requests are due: at a rate, at the rates of a file, or at the times of a trace.

The whole schedule is made before the run, so that drawing it takes no time from sending.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orion.errors import Invalid
from orion.simulation.serving import arriving
from orion.simulation.serving.rates import MOST_REQUESTS, Rates


@dataclass(frozen=True)
class Schedule:
    """The requests of a run.

    Attributes:
        due_s: when each request is due, in seconds from the run's begin, ascending.
        tokens: prompt and output tokens of each request; empty if no file defines them.
    """

    due_s: Sequence[float]
    tokens: Sequence[tuple[int, int]] = field(default=())


def from_rates(rates: Rates, seconds: float, arrivals: str, seed: int) -> Schedule:
    """Draw a schedule at rates.

    Args:
        rates: requests a second over time.
        seconds: the length of the run; infinity: until the rates end.
        arrivals: `poisson` or `uniform`.
        seed: equal seeds give equal schedules.

    Raises:
        Invalid: the rates do not end, or the run would have too many requests.
    """
    import numpy as np

    seconds = min(seconds, rates.ends_s)
    if seconds == float("inf"):
        raise Invalid("the last rate has no end: give --duration, such as 60s")
    if (expected := rates.expected(seconds)) > MOST_REQUESTS:
        raise Invalid(f"these are {expected:.3g} requests, and a run has at most {MOST_REQUESTS:,}: give a lower rate")
    drawn = rates.arrivals(seconds, arrivals, np.random.default_rng(seed))
    return Schedule(array("d", (drawn / 1e9).tobytes()))


def from_trace(path: Path, seconds: float) -> Schedule:
    """Read a schedule from a file of requests.

    Args:
        path: a trace of requests, whose times count from its first request, or a file of arrivals as
            `orion.simulation.serving.arriving` describes it.
        seconds: the length of the run; later requests are left out.

    Raises:
        Unreadable: the file cannot be read, holds no requests, or has a bad line.
    """
    rows = sorted((row for row in arriving.read(path) if row[0] < seconds), key=lambda row: row[0])
    has_tokens = bool(rows) and len(rows[0]) == 3
    tokens = [(int(row[1]), int(row[2])) for row in rows] if has_tokens else []
    return Schedule(array("d", (row[0] for row in rows)), tokens)
