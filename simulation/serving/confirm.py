"""Tries out a plan: the requests of each service are Poisson on each of its parts, and the parts serve them.

These callers have a plan and need the miss ratio of each service: `orion simulate serving --cases --confirm` and tests
of planners. Nothing is dropped.
"""

from collections.abc import Callable, Mapping

import numpy as np

from orion.planning.serving.plans import Part, Plan

from . import batches, slices
from .batches import Queue
from .rates import constant

BatchMs = Callable[[Part, str, int], float]
""" How long a batch takes on a part, in milliseconds, from the part, the service and the number of requests. """


def miss_ratios(
    plan: Plan,
    rates: Mapping[str, float],
    objectives_ms: Mapping[str, float],
    batch_ms: BatchMs,
    seconds: float,
    seed: int = 0,
) -> dict[str, float | None]:
    """Simulate a plan, and return for each service of `rates` which part of its requests is late.

    Each service's requests are Poisson on each of its parts, with the service's rate in proportion to the parts'
    throughput. The simulation goes on until the last request is served.

    Args:
        plan: the plan.
        rates: requests/s of each service.
        objectives_ms: the longest latency of each service that is no miss, in milliseconds.
        batch_ms: the time of a batch on a part, with all slowdowns and overheads: a caller's closure.
        seconds: for how long requests arrive.
        seed: the random numbers.

    Returns:
        A ratio from 0 to 1; 1 if a service with a rate is on no part, None if it has no request.
    """
    random = np.random.default_rng(seed)
    totals = {
        name: sum(each.throughput for part in plan.parts for each in part.services if each.service == name)
        for name in rates
    }
    missed, counted = dict.fromkeys(rates, 0), dict.fromkeys(rates, 0)
    for part in plan.parts:
        queues = []
        for each in part.services:
            rate = rates[each.service] * each.throughput / totals[each.service] if totals[each.service] else 0.0
            arrivals = constant(rate).arrivals(seconds, "poisson", random).tolist()
            times = [0.0, *(batch_ms(part, each.service, size) * 1e6 for size in range(1, each.batch + 1))]
            queues.append(Queue(arrivals, times, each.max_delay_ms * 1e6, objectives_ms[each.service] * 1e6))
        served = slices.serve(queues) if part.order == "slices" else batches.serve(queues, part.order)
        for each, queue, result in zip(part.services, queues, served, strict=True):
            missed[each.service] += int((result.ends - np.array(queue.arrivals) > queue.objective).sum())
            counted[each.service] += len(queue.arrivals)
    found: dict[str, float | None] = {name: missed[name] / count if count else None for name, count in counted.items()}
    return found | {name: 1.0 for name, total in totals.items() if not total and rates[name] > 0}
