"""What a queue makes of requests that take longer: hp's p99 over alone's, by alone's own arrivals and service times.

One server, first come first served. It says how much of a tail is nothing but queueing, for `orion.bench.busy_periods`;
the model with a policy in it, which says what a perfect one would reach, is `orion.bench.colocation.ceiling`.
"""

import numpy as np

from orion.bench.colocation.run_files import Run
from orion.bench.samples import percentile


def queued_p99(alone: Run, slowdown: float = 1.0, late: float = 0.0) -> float:
    """Return p99 over what it is with neither a slowdown nor a wait.

    Args:
        alone: Arrivals and service times.
        slowdown: Of each request's service.
        late: Seconds more for each request that finds the server idle, however shortly: be comes in after 0.05 ms.
    """
    return _p99(alone, slowdown, late) / _p99(alone, 1.0, 0.0)


def _p99(alone: Run, slowdown: float, late: float) -> float:
    free, ends = 0.0, []
    for arrival, service in zip(alone.arrivals, np.asarray(alone.ends) - np.asarray(alone.starts), strict=True):
        free = max(free, arrival) + slowdown * service + (late if arrival > free else 0.0)
        ends.append(free)
    return percentile(np.asarray(ends[alone.first :]) - np.asarray(alone.arrivals[alone.first :]), 99)
