"""How much hp and be can do together at a given hp p99: a queueing model fed with measured speeds.

hp is a single server with a first-come first-served queue. While it is busy, be may run beside it; that slows hp down
and still gives be less than a GPU of its own. The tail is made by queueing, so overlap costs least while a busy period
is young. The policy of the model is that and nothing else: be overlaps until a busy period is X seconds old, then hp
runs without be until it has nothing left to do, and be has the GPU to itself until the next request. One number X
thus trades p99 for throughput. A scheduler that also chooses which kernels to overlap may come above that front.

Order holds between a gate, any X and overlap without end, but not request by request between two values of X: a busy
period that ends just in time is followed by a young one. So the front is an envelope, not the curve as it comes.

The model is exact for given arrivals and services: no simulation steps, all X at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orion.bench.estimates import Samples


@dataclass(frozen=True)
class Speeds:
    """What closed loops measured; all relative to having the GPU alone, without sharing of any kind."""

    alone: float
    """hp's speed in the mode while be stands still (under MPS a little less than 1)."""
    overlapped: float
    """hp's speed while be runs beside it."""
    be_overlapped: float
    """be's speed beside hp; while hp is idle it is 1."""

    def __post_init__(self) -> None:
        if self.alone <= 0 or self.overlapped <= 0 or self.be_overlapped < 0:
            raise ValueError(f"speeds must be positive: {self}")


@dataclass(frozen=True)
class Outcomes:
    """What each X leads to; the arrays belong together."""

    limits: Samples
    """X in seconds."""
    latencies: Samples
    """Seconds, shape (X, requests)."""
    hp: Samples
    """hp's throughput in the window over its capacity alone."""
    be: Samples
    """be's throughput in the window over its own alone."""

    @property
    def total(self) -> Samples:
        """Return hp + be."""
        return self.hp + self.be

    def percentile(self, rank: float, first: int = 0) -> Samples:
        """Return a latency percentile for each X, of the requests from index `first` on."""
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
        service: Seconds that a request takes alone without sharing: one for all, or one each.
        speeds: As measured.
        limits: X in seconds, each 0 (a gate) to infinity (overlap without end).
        window: What throughput is counted in; from 0 to the last completion if left out.
    """
    times, limits = np.asarray(arrivals, dtype=np.float64), np.asarray(limits, dtype=np.float64)
    if not len(times) or not len(limits):
        raise ValueError("there is no queue without a request and no policy without a limit")
    begins, starts, ends = _queue(times, np.broadcast_to(service, times.shape), speeds, limits)
    low, high = window if window is not None else (0.0, ends[:, -1:])
    busy = _inside(starts, ends, low, high)
    young = _inside(starts, np.minimum(ends, begins + limits[:, None]), low, high)
    hp = speeds.overlapped * young + speeds.alone * (busy - young)
    length = np.asarray(high - low).reshape(-1)
    be = (length - busy.sum(axis=1) + speeds.be_overlapped * young.sum(axis=1)) / length
    return Outcomes(limits, ends - times, hp.sum(axis=1) / length, be)


def front(hp_p99: Samples, total: Samples) -> tuple[Samples, Samples]:
    """Keep the points that no other point heartbeats on both axes.

    Returns:
        p99 ascending, and hp + be, which ascends with it.
    """
    order = np.lexsort((-total, hp_p99))
    p99, best = hp_p99[order], np.maximum.accumulate(total[order])
    better = np.concatenate(([True], best[1:] > best[:-1]))
    return p99[better], best[better]


def fraction(
    hp_p99: float, total: float, ceiling: tuple[Sequence[float] | Samples, Sequence[float] | Samples]
) -> float:
    """Return how much of the ceiling a measured point reaches at its own p99.

    Between the points of the ceiling's front it is interpolated. Beyond its slow end the ceiling is its last value.
    Before its fast end the model has no policy that is so kind to hp; the first value is taken, which can only make
    the fraction too small.
    """
    return total / float(np.interp(hp_p99, *ceiling))


def limits_for(service: float, longest: float, count: int = 48) -> Samples:
    """Return values of X worth trying: 0, a geometric ladder from a quarter of a request to `longest`, and no end."""
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
    """Return how much of each span lies in a window; spans that end before they begin have no length."""
    return np.asarray(np.maximum(0.0, np.minimum(ends, high) - np.maximum(begins, low)))
