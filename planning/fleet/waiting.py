"""How long requests wait at one server that takes them first come first served (M/G/1), and what rate it can hold.

A service known by the time of one request is a queue with one server: requests come at random (Poisson), and each takes
the same time. Several services on one GPU are one queue with several service times. The Pollaczek-Khinchine formula
says that the wait is a sum of residual service times, and that their number is geometric. The sum is computed on a grid
(Panjer's recursion). The residual times keep their mean on the grid, so the error falls with the square of the step.
Refused: Erlang's alternating series for M/D/1, because it loses all digits from about 30 service times on.

Source: L. Kleinrock, Queueing Systems, volume 1, 1975, chapter 5; H. Panjer, ASTIN Bulletin 12, 1981.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

MISSES = 0.01
""" The part of requests that may miss their objective: an objective holds at the 99th percentile. """
_FINE, _COARSE, _MOST_STEPS = 12, 64, 3000  # steps in a service time; least and most steps of the whole grid
_CLEARLY = 3.0  # a coarse grid gives too many misses, by less than this factor
_HALVINGS = 24
FULLEST = 0.995
""" No plan loads a GPU with more than this part of its time: waits would take hours to settle. """

Load = tuple[float, float]  # requests/s, seconds of one request


def busy(loads: Sequence[Load]) -> float:
    """Return the part of the time in which requests are on the GPU."""
    return sum(rate * service_s for rate, service_s in loads)


def busy_periods(loads: Sequence[Load]) -> float:
    """Return how often a second the GPU becomes busy: requests that find no other request begin a busy period."""
    return sum(rate for rate, _ in loads) * max(0.0, 1 - busy(loads))


def waits_longer(loads: Sequence[Load], waits_s: Sequence[float], fine: int = _FINE) -> list[float]:
    """Return the probability that a request waits longer, for each of some times.

    Args:
        loads: the services on the GPU.
        waits_s: times from a request's arrival to its begin.
        fine: steps of the grid in the shortest service time.
    """
    part = busy(loads)
    if part >= 1:
        return [1.0] * len(waits_s)
    longest_s = max(waits_s)
    if part <= 0 or longest_s <= 0:
        return [part if wait_s >= 0 else 1.0 for wait_s in waits_s]
    shortest_s = min(service_s for rate, service_s in loads if rate > 0)
    steps = int(min(max(_COARSE, fine * longest_s / shortest_s), _MOST_STEPS))
    below = _below(loads, longest_s / steps, steps)
    return [1.0 if wait_s < 0 else float(1 - np.interp(wait_s, longest_s / steps * np.arange(steps + 1), below))
            for wait_s in waits_s]  # fmt: skip


def holds(loads: Sequence[Load], objectives_s: Sequence[float], late_s: float) -> bool:
    """Return whether each service on a GPU holds its objective.

    Args:
        loads: the services on the GPU.
        objectives_s: the objective of each.
        late_s: how much later a request may begin because best-effort work leaves the GPU first.
    """
    if busy(loads) > FULLEST:
        return False
    left_s = [objective_s - late_s - load[1] for objective_s, load in zip(objectives_s, loads, strict=True)]
    if min(left_s) < 0:
        return False
    coarsely = max(waits_longer(loads, left_s, 0))
    if coarsely > _CLEARLY * MISSES:
        return False
    return coarsely <= MISSES / _CLEARLY or max(waits_longer(loads, left_s)) <= MISSES


@lru_cache(maxsize=1024)  # a plan asks this of each service for each way that it tries
def highest_rate(service_s: float, objective_s: float, late_s: float = 0.0) -> float:
    """Return the highest rate at which one GPU holds a service's objective; 0 if no rate does."""
    if objective_s - late_s < service_s:
        return 0.0
    low, high = 0.0, FULLEST / service_s
    if holds([(high, service_s)], [objective_s], late_s):
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if holds([(middle, service_s)], [objective_s], late_s):
            low = middle
        else:
            high = middle
    return low


def _below(loads: Sequence[Load], step_s: float, steps: int) -> NDArray[np.float64]:
    """Return the probability of a wait of at most 0, 1, .. steps of the grid."""
    part = busy(loads)
    longest = max(service_s for rate, service_s in loads if rate > 0)
    # Only waits up to the last step count. A service time may be many times longer than the longest wait.
    places = np.arange(-1, min(int(longest / step_s) + 3, steps + 3)) * step_s
    residual = np.zeros(len(places) - 2)
    for rate, service_s in loads:
        inner = np.clip(places, 0.0, service_s)
        integral = inner**2 / (2 * service_s) + np.maximum(places - service_s, 0.0)
        residual += rate * service_s / part * np.diff(integral, 2) / step_s
    scale = 1 - part * residual[0]
    found: NDArray[np.float64] = (1 - part) / scale * _inverse(-part / scale * residual[1:], steps + 1)
    return np.cumsum(found) - found / 2 * (np.arange(steps + 1) > 0)


def _inverse(coefficients: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return the first coefficients of the power series 1 / (1 + c[0] z + c[1] z**2 + ..).

    Newton's iteration doubles them in each round, so Panjer's recursion needs no loop over the steps. Where no
    coefficient is positive, as here, it adds terms of one sign only, and so loses no digits.
    """
    found = np.ones(1)
    while (known := len(found)) < count:
        lacking = np.zeros(known)
        product = np.convolve(coefficients[: 2 * known], found)[known - 1 : 2 * known - 1]
        lacking[: len(product)] = product
        found = np.concatenate([found, -np.convolve(found, lacking)[:known]])
    return found[:count]
