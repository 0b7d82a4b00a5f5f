"""A queueing model of how much hp and be can do together at a given hp p99, computed from measured speeds.

hp is one server with a first-come first-served queue. While hp is busy, be may run beside it, which slows both down.
Queueing makes the tail of hp's latencies, so overlap costs least early in a busy period. The model has one policy: be
runs beside hp until a busy period is X seconds old; then hp runs without be until its queue is empty; then be has the
GPU to itself until the next request. X trades p99 for throughput. A scheduler that also chooses which kernels to
overlap may exceed the model.

X = 0 is a gate, and X = infinity is overlap without end. But a larger X does not make every request slower. With the
larger X, a busy period may still last when the next request arrives, so that request runs without be. With the smaller
X, the same request starts a new busy period, with overlap. So the ceiling is the envelope of the curve over X.

The model is exact for given arrivals and service times: it has no time steps, and computes all X at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orion.bench.estimates import Samples


@dataclass(frozen=True)
class Speeds:
    """Speeds measured in closed loops, relative to the speed on a GPU without any sharing."""

    alone: float
    """hp's speed in the sharing mode while be does nothing (under MPS a little less than 1)."""
    overlapped: float
    """hp's speed while be runs beside it."""
    be_overlapped: float
    """be's speed beside hp; while hp is idle, be's speed is 1."""

    def __post_init__(self) -> None:
        if self.alone <= 0 or self.overlapped <= 0 or self.be_overlapped < 0:
            raise ValueError(f"speeds must be positive: {self}")


@dataclass(frozen=True)
class Outcomes:
    """The outcome of each X; row i of each array belongs to `limits[i]`."""

    limits: Samples
    """X in seconds."""
    latencies: Samples
    """Seconds, shape (X, requests)."""
    hp: Samples
    """hp's throughput in the window, as a share of its capacity alone."""
    be: Samples
    """be's throughput in the window, as a share of its throughput alone."""

    @property
    def total(self) -> Samples:
        """Return the sum of hp's and be's throughput."""
        return self.hp + self.be

    def percentile(self, rank: float, first: int = 0) -> Samples:
        """Return a latency percentile for each X, over the requests from index `first` on."""
        return np.asarray(np.percentile(self.latencies[:, first:], rank, axis=1))


def outcomes(
    arrivals: Sequence[float] | Samples,
    service: float | Samples,
    speeds: Speeds,
    limits: Sequence[float] | Samples,
    window: tuple[float, float] | None = None,
) -> Outcomes:
    """Run the queue for every X.

    Args:
        arrivals: Ascending times in seconds.
        service: Seconds that a request takes without sharing: one number for all requests, or one for each.
        speeds: Measured speeds.
        limits: Values of X in seconds, from 0 (a gate) to infinity (overlap without end).
        window: Throughput counts in this window; the default is from 0 to the last completion.
    """
    times, limits = np.asarray(arrivals, dtype=np.float64), np.asarray(limits, dtype=np.float64)
    if not len(times) or not len(limits):
        raise ValueError("the model needs at least one request and at least one limit")
    begins, starts, ends = _queue(times, np.broadcast_to(service, times.shape), speeds, limits)
    low, high = window if window is not None else (0.0, ends[:, -1:])
    busy = _inside(starts, ends, low, high)
    young = _inside(starts, np.minimum(ends, begins + limits[:, None]), low, high)
    hp = speeds.overlapped * young + speeds.alone * (busy - young)
    length = np.asarray(high - low).reshape(-1)
    be = (length - busy.sum(axis=1) + speeds.be_overlapped * young.sum(axis=1)) / length
    return Outcomes(limits, ends - times, hp.sum(axis=1) / length, be)


def front(hp_p99: Samples, total: Samples) -> tuple[Samples, Samples]:
    """Keep the points for which no other point has both a lower p99 and a higher hp + be.

    Returns:
        p99 in ascending order, and hp + be, which is then also ascending.
    """
    order = np.lexsort((-total, hp_p99))
    p99, best = hp_p99[order], np.maximum.accumulate(total[order])
    better = np.concatenate(([True], best[1:] > best[:-1]))
    return p99[better], best[better]


def fraction(
    hp_p99: float, total: float, ceiling: tuple[Sequence[float] | Samples, Sequence[float] | Samples]
) -> float:
    """Return a measured point's hp + be, divided by the ceiling at the point's p99.

    The ceiling is interpolated between its points. Above the ceiling's largest p99 its last value applies. Below the
    ceiling's smallest p99 its first value applies, which can only make the fraction too small.
    """
    return total / float(np.interp(hp_p99, *ceiling))


def limits_for(service: float, longest: float, count: int = 48) -> Samples:
    """Return values of X to try: 0, a geometric series from a quarter of a request to `longest`, and infinity."""
    low = service / 4
    return np.concatenate(([0.0], np.geomspace(low, max(longest, 2 * low), count), [np.inf]))


def _queue(arrivals: Samples, services: Samples, speeds: Speeds, limits: Samples) -> tuple[Samples, Samples, Samples]:
    """Return when each request's busy period began, and when its service began and ended; shape (X, requests)."""
    begin, end, done = (np.full(len(limits), value) for value in (-np.inf, -np.inf, 0.0))
    rows = []
    for arrival, service in zip(arrivals, services, strict=True):
        idle = arrival >= end
        begin, done = np.where(idle, arrival, begin), np.where(idle, 0.0, done) + service
        start = np.maximum(arrival, end)
        young = np.minimum(done, speeds.overlapped * limits)
        end = begin + young / speeds.overlapped + (done - young) / speeds.alone
        rows.append((begin, start, end))
    begins, starts, ends = np.moveaxis(np.asarray(rows), 0, -1)
    return begins, starts, ends


def _inside(begins: Samples, ends: Samples, low: float, high: float | Samples) -> Samples:
    """Return how much of each span is in the window; a span that ends before it begins has length 0."""
    return np.asarray(np.maximum(0.0, np.minimum(ends, high) - np.maximum(begins, low)))
