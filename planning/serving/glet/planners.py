"""The planners `glet`, `greedy`, `temporal` and `full-search`: the same scheduler with different rules."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from ..cases import Case, Decide, Limits, Measured
from ..plans import Assignment, Plan
from ..plans import Part as PlannedPart
from .schedule import schedule, tasks
from .state import IGNORED_RATE, Gpu, Part, Rules, State, Task
from .times import Times

_SPLITS = (50, 60, 80, 100)
""" The first share of each way to divide a GPU, in the order in which full search tries them. """


def glet(measured: Measured, limits: Limits) -> Decide:
    """Elastic partitioning: each service gets the smallest share at which more would bring little."""
    return _planner(measured, limits, Rules(has_interference=measured.constants is not None))


def greedy(measured: Measured, limits: Limits) -> Decide:
    """Grow the share with the rate ("Self Tuning", like GSLICE); interference is ignored, as in glet."""
    return _planner(measured, limits, Rules(is_greedy=True))


def temporal(measured: Measured, limits: Limits) -> Decide:
    """Share whole GPUs in time only; interference does not occur."""
    return _planner(measured, limits, Rules(shares=(100,), has_parts=False))


def full_search(measured: Measured, limits: Limits) -> Decide:
    """Try glet's scheduler on every way to divide the GPUs beforehand, and take the first that holds all services."""
    return _planner(measured, limits, Rules(may_divide=False, has_interference=measured.constants is not None))


def _planner(measured: Measured, limits: Limits, rules: Rules) -> Decide:
    times = Times(measured, rules.shares, has_interference=rules.has_interference)

    def decide(case: Case) -> Plan:
        wanted, failed = tasks(case), None
        if hopeless := _hopeless(times, measured, wanted):
            return Plan((), hopeless, is_schedulable=False)
        for gpus in _starts(limits.gpus, rules):
            state = State(gpus, measured, times, rules)
            failed = schedule(state, [replace(task) for task in wanted])
            if failed is None:
                return Plan(tuple(_parts(state)))
        return Plan((), _why(measured, limits, failed), is_schedulable=False)

    return decide


def _hopeless(times: Times, measured: Measured, wanted: Sequence[Task]) -> str:
    """Return why a service has no plan on any number of GPUs; empty if each may have one.

    glet's own code ends with a failed assertion at such an objective, or puts the service on a part all the same.
    """
    for task in wanted:
        model = measured.models[task.model]
        name, least_ms = f"model {task.model} ({model.name})", times.alone[task.model, 100][1]
        needed_mb = model.memory_mb + measured.part_memory_mb
        if task.rate <= IGNORED_RATE:
            continue
        if least_ms >= task.objective_ms:
            return (
                f"{name} takes {least_ms:.2f} ms for one request on a whole GPU, so nothing holds its objective of "
                f"{task.objective_ms} ms: give {int(least_ms) + 1} ms at least"
            )
        if needed_mb >= measured.gpu_memory_mb:
            return (
                f"{name} needs {needed_mb:g} MB with its part, and a GPU has {measured.gpu_memory_mb:g} MB: "
                "give GPUs with more memory"
            )
    return ""


def _why(measured: Measured, limits: Limits, failed: Task | None) -> str:
    if failed is None:
        return "there is no GPU"
    name = f"model {failed.model} ({measured.models[failed.model].name})"
    if failed.rate <= IGNORED_RATE:
        return (
            f"{name} has so few requests that glet leaves it out, and beside interference glet then refuses the case: "
            "give it 8 requests/s, or leave the interference out"
        )
    return f"{name} finds no place for all of its {failed.rate} requests/s on {limits.gpus} GPUs: give more GPUs"


def _starts(count: int, rules: Rules) -> Iterator[list[Gpu]]:
    """Yield the GPUs with which the scheduler begins: undivided, or each way to divide them."""
    if rules.may_divide:
        yield [Gpu([Part(gpu, 100)]) for gpu in range(count)]
        return
    for shares in product(_SPLITS, repeat=count):  # the last GPU changes slowest, the first fastest
        yield [_divided(gpu, share) for gpu, share in enumerate(reversed(shares))]


def _divided(gpu: int, share: int) -> Gpu:
    first = [Part(gpu, share)]
    return Gpu(first if share == 100 else [*first, Part(gpu, 100 - share, int(share == 50))])


def _parts(state: State) -> Iterator[PlannedPart]:
    for part in state.parts():
        if part.services:
            yield PlannedPart(part.gpu, part.share, part.copy, _way(part), "fifo", _assignments(part))


def _way(part: Part) -> str:
    if part.share < 100:
        return "part"
    return "exclusive" if len(part.services) == 1 else "turns"


def _assignments(part: Part) -> tuple[Assignment, ...]:
    return tuple(
        Assignment(str(placed.model), placed.batch, placed.throughput, part.duty_ms) for placed in part.services
    )
