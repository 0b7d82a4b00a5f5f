"""Decides many cases by several planners, in one process or in several, and tries the plans out if asked.

A process prepares each planner once. Results come in the order of planners and cases, and no figure depends on the
number of processes: a planner's decision depends on its case alone, and the number of the case seeds its simulation.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from orion.planning.serving.cases import Case, Decide, Limits, Measured
from orion.planning.serving.planners import PLANNERS
from orion.planning.serving.plans import Part, Plan
from orion.simulation import processes

from .confirm import miss_ratios

CHUNK = 64
""" Cases of one task: few enough for progress, and enough that passing them costs little. """
HELD_MISSES = 0.01
FORM = 1
""" The version of decisions and rows. A change of either raises it, so that earlier chunks are not reused. """

Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """What all decisions have in common.

    Attributes:
        measured: what is known of the GPU and of the models.
        limits: what a plan may use.
        confirm_s: for how long each plan is simulated; 0: it is not.
    """

    measured: Measured
    limits: Limits
    confirm_s: float = 0.0


@dataclass(frozen=True)
class Chunk:
    """Decided cases that follow each other.

    Attributes:
        planner: who decided.
        rows: a line of plans.jsonl for each case.
    """

    planner: str
    rows: Sequence[Row]


class _Worker:
    """What a process keeps: the prepared planners."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._prepared: dict[str, Decide] = {}

    def decide(self, planner: str, first: int, cases: Sequence[Case]) -> Chunk:
        """Decide cases; `first` is the number of the first one."""
        if planner not in self._prepared:
            self._prepared[planner] = PLANNERS[planner](self._setting.measured, self._setting.limits)
        plans = [self._prepared[planner](case) for case in cases]
        rows = []
        for number, (case, plan) in enumerate(zip(cases, plans, strict=True), first):
            row = _row(number, planner, plan)
            if self._setting.confirm_s:
                row |= _confirmed(self._setting, number, case, plan)
            rows.append(row)
        return Chunk(planner, rows)


_workers: list[_Worker] = []  # of this process


def _begin(setting: Setting) -> None:
    _workers[:] = [_Worker(setting)]


def _decide(planner: str, first: int, cases: Sequence[Case]) -> Chunk:
    return _workers[0].decide(planner, first, cases)


def digest(setting: Setting, planners: Sequence[str], cases: Sequence[Case]) -> str:
    """Return a digest of everything that the decisions depend on."""
    return hashlib.sha256(repr((FORM, CHUNK, setting, planners, cases)).encode()).hexdigest()[:24]


def decide_all(
    setting: Setting, planners: Sequence[str], cases: Sequence[Case], workers: int, first: int = 0
) -> Iterator[Chunk]:
    """Yield the decisions of all planners on all cases, in order, without the first chunks.

    Raises:
        Conflict: a process ended.
    """
    tasks = [
        (planner, start + 1, cases[start : start + CHUNK])
        for planner in planners
        for start in range(0, len(cases), CHUNK)
    ][first:]
    if workers == 1 or len(tasks) < 2:
        worker = _Worker(setting)
        yield from (worker.decide(*task) for task in tasks)
        return
    with processes.started(min(workers, len(tasks)), _begin, setting) as pool:
        yield from _in_order(pool, tasks, 4 * workers)


def _in_order(
    pool: ProcessPoolExecutor, tasks: Sequence[tuple[str, int, Sequence[Case]]], ahead: int
) -> Iterator[Chunk]:
    """Yield the results of tasks in their order. A few tasks run ahead, so that memory does not grow with all."""
    left = iter(tasks)
    running: list[Future[Chunk]] = []
    while True:
        with processes.deaf_to_interrupts():
            running += [pool.submit(_decide, *task) for task in islice(left, ahead - len(running))]
        if not running:
            return
        yield running.pop(0).result()


def _row(number: int, planner: str, plan: Plan) -> Row:
    return {
        "case": number,
        "planner": planner,
        "schedulable": plan.is_schedulable,
        "gpus": plan.gpus,
        "reason": plan.reason,
        "parts": [
            {
                "gpu": part.gpu,
                "share": part.share,
                "copy": part.copy,
                "way": part.way,
                "order": part.order,
                "services": [
                    {
                        "model": int(each.service),
                        "batch": each.batch,
                        "throughput": each.throughput,
                        "max_delay_ms": each.max_delay_ms,
                    }
                    for each in part.services
                ],
            }
            for part in plan.parts
        ],
    }


def _confirmed(setting: Setting, number: int, case: Case, plan: Plan) -> Row:
    """Simulate a plan; return each model's part of late requests, and whether all hold their objectives."""
    if not plan.is_schedulable:
        return {"misses": None, "held": None}
    found = miss_ratios(
        plan,
        {str(service.model): service.rate for service in case},
        {str(service.model): service.objective_ms for service in case},
        partial(_batch_ms, setting.measured, _slowdowns(setting.measured, plan)),
        setting.confirm_s,
        number,
    )
    return {"misses": found, "held": all((ratio or 0.0) <= HELD_MISSES for ratio in found.values())}


def _slowdowns(measured: Measured, plan: Plan) -> dict[tuple[int, int, int, str], float]:
    """Return each service's slowdown on each part, by the neighbours' planned batches."""
    return {
        (*_place(part), mine.service): measured.slowdown(
            (int(mine.service), mine.batch, part.share),
            [
                (int(each.service), each.batch, other.share)
                for other in plan.parts
                if other.gpu == part.gpu and other is not part
                for each in other.services
            ],
        )
        for part in plan.parts
        for mine in part.services
    }


def _place(part: Part) -> tuple[int, int, int]:
    return part.gpu, part.share, part.copy


def _batch_ms(
    measured: Measured, slowdowns: Mapping[tuple[int, int, int, str], float], part: Part, service: str, batch: int
) -> float:
    """Return the time of a batch: the table, slowed down, and the overhead, without glet's margin."""
    return measured.models[int(service)].batch_ms(batch, part.share, slowdowns[(*_place(part), service)])
