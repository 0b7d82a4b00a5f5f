"""Counts requests that took far longer than the others of their run, and runs with other activity on the host.

No request is filtered out: the count only informs the reader. A p99 of a thousand requests depends on ten of them, so
a few disturbances by the host may decide it. The count includes slow requests that the measured system itself causes,
for example with be kernels of 50 ms. The count of `alone` shows how many the machine causes by itself.
"""

from collections.abc import Sequence

import numpy as np

from orion.bench.colocation.run_files import Run
from orion.bench.colocation.summary import Hiccups
from orion.bench.estimates import Samples

TIMES = 2.5
BEYOND_SECONDS = 8e-3


def hiccups(runs: Sequence[Run]) -> Hiccups:
    """Count service times (closed loop: iteration times) above 2.5 x the median of their run + 8 ms.

    A service time begins when hp could have begun the request, so it includes a late wake-up of the server.

    Args:
        runs: The runs of one system, one for each round.
    """
    number, longest, disturbed = 0, None, 0
    for run in runs:
        times = _services(run) if run.open_loop else run.iterations
        far = times[times > TIMES * np.median(times) + BEYOND_SECONDS] if len(times) else times
        number += len(far)
        if len(far):
            longest = max(longest or 0.0, 1e3 * float(far.max()))
        disturbed += bool(run.disturbances)
    return Hiccups(number=number, longest_ms=longest, disturbed=disturbed)


def _services(run: Run) -> Samples:
    """Return each measured request's seconds from its arrival, or the previous request's end if later, to its end."""
    arrivals, ends = np.asarray(run.arrivals), np.asarray(run.ends)
    could_begin = np.maximum(arrivals, np.concatenate(([0.0], ends[:-1])))
    return np.asarray((ends - could_begin)[run.first :])
