"""What one run's samples say: percentiles, latencies, completed steps.

Plain Python, because `orion demo` and `orion launch` belong to the plain install, which has no numpy. Comparisons of
runs, with their intervals, are in `estimates`.
"""

import bisect
import itertools
from collections.abc import Iterable, Sequence


def percentile(samples: Iterable[float], rank: float) -> float:
    """Return the percentile `rank` (0 to 100), linearly interpolated; NaN where there is no sample."""
    ordered = sorted(samples)
    if not ordered:
        return float("nan")
    position = (len(ordered) - 1) * rank / 100
    below = min(int(position), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (ordered[above] - ordered[below]) * (position - below))


def latencies_ms(arrivals: Sequence[float], ends: Sequence[float]) -> list[float]:
    """Latency of each request in milliseconds, from its scheduled arrival; both arguments in seconds."""
    return [1e3 * (end - arrival) for arrival, end in zip(arrivals, ends, strict=True)]


def completed_between(ends: Sequence[float], begin: float, end: float) -> float:
    """Count steps of a closed loop in a window, the steps across its edges by their part inside.

    Args:
        ends: Ascending completion times of consecutive steps, seconds.
        begin: The window's begin; a step is taken to begin when the one before it ends.
        end: The window's end.

    Returns:
        Steps in [begin, end], a fraction allowed. Outside the first and last completion nothing is known, and nothing
        counted.
    """
    return _position(ends, end) - _position(ends, begin)


def binned_rates(ends: Sequence[float], begin: float, end: float, bins: int) -> list[float]:
    """Steps a second in each of `bins` equal parts of a window; arguments in seconds as for `completed_between`."""
    width = (end - begin) / bins
    edges = [begin + width * number for number in range(bins + 1)]
    return [completed_between(ends, low, high) / width for low, high in itertools.pairwise(edges)]


def _position(ends: Sequence[float], time: float) -> float:
    index = bisect.bisect_right(ends, time)
    if index == 0:
        return 0.0
    if index == len(ends):
        return float(len(ends) - 1)
    before, after = ends[index - 1], ends[index]
    return index - 1 + (time - before) / (after - before)
