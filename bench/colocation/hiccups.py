"""Single requests that took far longer than the others of their run, and what else happened on the host meanwhile.

Nothing is filtered by this: a p99 of a thousand requests rests on ten of them, so a reader has to see whether some came
from outside. What a system makes of many requests (be kernels of 50 ms before them) shows here, too; alone shows what
the machine does by itself.
"""

from collections.abc import Sequence

import numpy as np

from orion.bench.colocation.run_files import Run
from orion.bench.colocation.summary import Hiccups
from orion.bench.estimates import Samples

TIMES = 2.5
BEYOND_SECONDS = 8e-3


def hiccups(runs: Sequence[Run]) -> Hiccups:
    """Count service times (of a closed loop: iterations) above 2.5 x the median of their run + 8 ms.

    Service counts from when hp could have begun: a process that slept too long was disturbed as well.

    Args:
        runs: Of one system, one a round.
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
    """Return seconds from arrival, or the end of the request before, to the end, of the requests that count."""
    arrivals, ends = np.asarray(run.arrivals), np.asarray(run.ends)
    could_begin = np.maximum(arrivals, np.concatenate(([0.0], ends[:-1])))
    return np.asarray((ends - could_begin)[run.first :])
