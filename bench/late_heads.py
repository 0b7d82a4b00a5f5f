"""A queueing model of hp's p99: it predicts how p99 grows if some requests take longer than in the run of hp alone.

A head is the first request of a busy period. A head is late if it waits until the GPU has switched from be to hp. The
model is one first-come-first-served server with the arrivals and service times of the run of hp alone.
`orion.bench.busy_periods` uses the model to find the part of a tail that queueing explains. The model of a perfect
scheduling policy is `orion.bench.colocation.ceiling`.
"""

import numpy as np

from orion.bench.colocation.run_files import Run
from orion.bench.samples import percentile


def queued_p99(alone: Run, slowdown: float = 1.0, late: float = 0.0) -> float:
    """Return the modelled p99, divided by the modelled p99 without slowdown and delay.

    Args:
        alone: Arrivals and service times.
        slowdown: Factor on each request's service time.
        late: Seconds added to each request that finds the server idle. A short idle time counts, too, because be
            starts to run 0.05 ms after hp becomes idle.
    """
    return _p99(alone, slowdown, late) / _p99(alone, 1.0, 0.0)


def _p99(alone: Run, slowdown: float, late: float) -> float:
    free, ends = 0.0, []
    for arrival, service in zip(alone.arrivals, np.asarray(alone.ends) - np.asarray(alone.starts), strict=True):
        free = max(free, arrival) + slowdown * service + (late if arrival > free else 0.0)
        ends.append(free)
    return percentile(np.asarray(ends[alone.first :]) - np.asarray(alone.arrivals[alone.first :]), 99)
