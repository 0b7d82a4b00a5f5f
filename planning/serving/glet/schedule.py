"""glet's scheduler: each service in turn by best fit, or else by readjusting, merging and time sharing.

Source: Choi et al., "Serving Heterogeneous Machine Learning Models on Multi-GPU Servers with Spatio-Temporal Sharing"
(USENIX ATC 2022), and the authors' scheduler (casys-kaist/glet).
"""

import math
from collections.abc import Sequence

from ..cases import Service
from .estimate import estimate
from .fit import fits_all, place_all
from .float32 import single
from .merge import merge
from .readjust import readjust
from .state import Part, State, Task
from .time_share import time_share

_QUANTILE = 0.99
_PLAIN_RATE, _LEAST_RATE = 550, 5
_LEAST_SERVED = single(0.85)


def raised(rate: int) -> int:
    """Return the rate that glet plans for: about the 99th percentile of a Poisson variable with this mean.

    glet leaves out the probability of 0, so that its sum never reaches 0.99 for a mean under 5: it hangs. Here that
    probability counts for such a mean. The result is ignored anyway.
    """
    if rate > _PLAIN_RATE:
        return int(rate * 1.1)
    probability = math.exp(-rate)
    total, count = (probability if rate < _LEAST_RATE else 0.0), 0
    while total < _QUANTILE:
        count += 1
        probability = probability * rate / count
        total += probability
    return count + 1


def tasks(services: Sequence[Service]) -> list[Task]:
    """Return a case's services with a rate, by model, as glet plans them: raised rates, whole milliseconds."""
    return [
        Task(service.model, raised(math.ceil(service.rate)), int(service.objective_ms))
        for service in sorted(services, key=lambda service: service.model)
        if service.rate
    ]


def schedule(state: State, wanted: Sequence[Task]) -> Task | None:
    """Place all services.

    With interference, services that get less than 0.85 of their rate in the end are placed once more.

    Args:
        state: changed.
        wanted: the services.

    Returns:
        The service that found no place, or None.
    """
    session, again = list(wanted), set[int]()
    while session:
        session.sort(key=lambda task: (task.rate * task.objective_ms, -task.model))
        for task in session:
            if not _add(state, Task(task.model, task.rate, task.objective_ms)):
                return task
        if not state.rules.has_interference:
            return None
        session = [task for task in session if _served(state, task) < single(task.rate * _LEAST_SERVED)]
        for task in session:
            if task.model in again:
                return task
            again.add(task.model)
    return None


def _served(state: State, task: Task) -> float:
    total = 0.0
    for part in state.parts():
        for placed in part.services:
            if placed.model == task.model:
                total = single(total + placed.throughput)
    return total


def _add(state: State, task: Task) -> bool:
    if any(placed.model == task.model for part in state.parts() for placed in part.services):
        return _move(state, task)
    wanted = estimate(state, task, 2 * len(state.gpus) + 1)
    if wanted is None:
        return False
    wanted.sort(key=lambda part: -part.share)
    if fits_all(state, wanted) and place_all(state, task, wanted):
        return True
    empty = [part for part in state.parts() if not part.services]
    return _fill(state, task, empty, ())


def _move(state: State, task: Task) -> bool:
    """Take a service off its parts, and place it once more on these and on empty ones."""
    given, former = list[Part](), list[Part]()
    for part in state.parts():
        if not part.services:
            given.append(part)
            continue
        kept = [placed for placed in part.services if placed.model != task.model]
        if len(kept) < len(part.services):
            part.services = kept
            former.append(part)
        total_ms = 0.0
        for placed in kept:
            total_ms = single(total_ms + state.ms(part, placed.model, placed.batch))
        part.occupancy = single(total_ms / part.duty_ms)
        if not kept:
            given.append(part)
    return _fill(state, task, given, former)


def _fill(state: State, task: Task, given: list[Part], former: Sequence[Part]) -> bool:
    readjust(state, task, given)
    if merge(state, task):
        return True
    return not state.rules.is_greedy and time_share(state, task, former)
