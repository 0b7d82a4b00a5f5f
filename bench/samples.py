"""Computes figures of one run: percentiles, latencies, completed steps.

This module does not use numpy: `orion demo` and `orion launch` use it in the plain install, which has no numpy.
`estimates` compares runs, with confidence intervals.
"""

import bisect
import itertools
from collections.abc import Iterable, Sequence


def percentile(samples: Iterable[float], rank: float) -> float:
    """Return the percentile `rank` (0 to 100), linearly interpolated; NaN if there is no sample."""
    ordered = sorted(samples)
    if not ordered:
        return float("nan")
    position = (len(ordered) - 1) * rank / 100
    below = min(int(position), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (ordered[above] - ordered[below]) * (position - below))


def latencies_ms(arrivals: Sequence[float], ends: Sequence[float]) -> list[float]:
    """Return each request's latency in milliseconds, from its scheduled arrival; both arguments are in seconds."""
    return [1e3 * (end - arrival) for arrival, end in zip(arrivals, ends, strict=True)]


def completed_between(ends: Sequence[float], begin: float, end: float) -> float:
    """Count the steps of a closed loop in a window. A step that crosses an edge counts by its fraction in the window.

    Args:
        ends: Ascending completion times of consecutive steps, seconds.
        begin: Start of the window. A step starts when the previous step ends.
        end: End of the window.

    Returns:
        Steps in [begin, end], with fractions. Time before the first and after the last completion adds no steps.
    """
    return _position(ends, end) - _position(ends, begin)


def binned_rates(ends: Sequence[float], begin: float, end: float, bins: int) -> list[float]:
    """Return steps a second in each of `bins` equal parts of a window; arguments as for `completed_between`."""
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
