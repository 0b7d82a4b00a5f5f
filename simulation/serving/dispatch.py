"""Divides a service's requests among the parts that serve it, in proportion to the parts' throughput.

Each request goes to the part at which (requests so far + 1) / throughput is smallest, at equal values to the first part
of the plan. So a part's count differs from its exact proportion by fewer requests than there are parts, and the result
is the same in each run. glet's dispatcher does nearly the same with credits. Refused: a queue that all parts share,
because the processes of different parts do not share one today.
"""

import math
from collections.abc import Sequence

import numpy as np


def weighted(count: int, throughputs: Sequence[float]) -> np.ndarray:
    """Return the index of the part for each of `count` requests.

    Args:
        count: the number of requests.
        throughputs: of each part, more than 0.
    """
    if len(throughputs) < 2:
        return np.zeros(count, dtype=np.int64)
    total, most = math.fsum(throughputs), count + len(throughputs)
    finishes = [np.arange(1, math.ceil(most * each / total) + 2) / each for each in throughputs]
    owners = np.repeat(np.arange(len(throughputs)), [len(each) for each in finishes])
    return owners[np.argsort(np.concatenate(finishes), kind="stable")[:count]]
