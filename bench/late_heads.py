"""Predicts how hp's p99 grows, by queueing alone, if requests take longer than they do alone.

The model is one first-come-first-served server with the arrivals and service times of hp alone.
`orion.bench.busy_periods` uses it to find the part of a tail that queueing explains. The model of a perfect scheduling
policy is `orion.bench.colocation.ceiling`.
"""

import numpy as np

from orion.bench.colocation.run_files import Run
from orion.bench.samples import percentile


def queued_p99(alone: Run, slowdown: float = 1.0, late: float = 0.0) -> float:
    """Return the modelled p99, divided by the modelled p99 without slowdown and delay.

    Args:
        alone: Arrivals and service times.
        slowdown: Factor on each request's service time.
        late: Seconds added to each request that finds the server idle, even if the idle time was short: be starts to
            run after 0.05 ms.
    """
    return _p99(alone, slowdown, late) / _p99(alone, 1.0, 0.0)


def _p99(alone: Run, slowdown: float, late: float) -> float:
    free, ends = 0.0, []
    for arrival, service in zip(alone.arrivals, np.asarray(alone.ends) - np.asarray(alone.starts), strict=True):
        free = max(free, arrival) + slowdown * service + (late if arrival > free else 0.0)
        ends.append(free)
    return percentile(np.asarray(ends[alone.first :]) - np.asarray(alone.arrivals[alone.first :]), 99)
