"""Mechanism opt: an integer program chooses the CPUs and memory of each job so that the sum of speeds is largest.

This is Synergy's first program. Synergy's second program splits jobs among servers and changes no speed. The program
knows only the capacities of the whole cluster, so a job may get a demand that no server has room for. The sum of
speeds is therefore an upper bound. Jobs that choose among the same points are of one kind, and the program counts
how many jobs of a kind get each point. The optimum is the same as with one choice for each job, but the program
does not grow with the number of jobs. Of a kind, the first jobs get the fastest points.

The solver is HiGHS. Refused: scipy's wrapper of HiGHS, because scipy is ten times as large.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any

import highspy
import numpy as np

from .resources import Demand, Server

GAP = 1e-6  # how far the sum of speeds may be below the optimum, relative to the optimum


class Unsolved(ValueError):
    """The solver found no choice."""


def shares(kinds: Sequence[int], choices: Sequence[tuple[Demand, ...]], servers: Sequence[Server]) -> list[Demand]:
    """Return the demand that each of the jobs gets.

    Args:
        kinds: the kinds of the jobs that run, in their order.
        choices: the points of each kind, the fastest first.
        servers: what the servers have.

    Raises:
        Unsolved: the choices do not fit the cluster.
    """
    jobs = Counter(kinds)  # in the order of their first jobs, so the program depends on the kinds alone
    cpus, memory_gb = sum(server.cpus for server in servers), sum(server.memory_gb for server in servers)
    if (
        sum(choices[kind][0].cpus * count for kind, count in jobs.items()) <= cpus
        and sum(choices[kind][0].memory_gb * count for kind, count in jobs.items()) <= memory_gb
    ):  # there is room for the fastest point of each job, and no solver is needed
        return [choices[kind][0] for kind in kinds]
    counts = solve(tuple(choices[kind] for kind in jobs), tuple(jobs.values()), cpus, memory_gb)
    given = {
        kind: chain.from_iterable(map(repeat, choices[kind], numbers))
        for kind, numbers in zip(jobs, counts, strict=True)
    }
    return [next(given[kind]) for kind in kinds]


@lru_cache(maxsize=1024)
def solve(
    choices: tuple[tuple[Demand, ...], ...], jobs: tuple[int, ...], cpus: float, memory_gb: float
) -> list[list[int]]:
    """Return how many jobs of each kind get each of its points.

    Args:
        choices: the points of each kind.
        jobs: the number of jobs of each kind.
        cpus: the CPUs of the cluster.
        memory_gb: the memory of the cluster.

    Raises:
        Unsolved: the choices do not fit the cluster.
    """
    points = [(group, point) for group, those in enumerate(choices) for point in those]
    rows = [[point.cpus for _, point in points], [point.memory_gb for _, point in points]]
    rows += [[float(owner == group) for owner, _ in points] for group in range(len(choices))]
    model = _model(
        cost=[point.speed for _, point in points],
        most=[float(jobs[group]) for group, _ in points],
        rows=np.array(rows),
        lower=[-highspy.kHighsInf, -highspy.kHighsInf, *map(float, jobs)],
        upper=[cpus, memory_gb, *map(float, jobs)],
    )
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("mip_rel_gap", GAP)
    solver.passModel(model)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        status = solver.modelStatusToString(solver.getModelStatus()).lower()
        raise Unsolved(f"mechanism opt found no shares for {sum(jobs)} jobs ({status})")
    values = iter(solver.getSolution().col_value)
    return [[round(next(values)) for _ in those] for those in choices]


def _model(
    *, cost: Sequence[float], most: Sequence[float], rows: np.ndarray, lower: Sequence[float], upper: Sequence[float]
) -> highspy.HighsLp:
    """Return a program that maximizes the sum of costs over integers from 0 to `most`; each row stays in its bounds."""
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(cost), len(rows)
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = np.array(cost)
    model.col_lower_, model.col_upper_ = np.zeros(len(cost)), np.array(most)
    model.row_lower_, model.row_upper_ = np.array(lower), np.array(upper)
    model.integrality_ = [highspy.HighsVarType.kInteger] * len(cost)
    at_rows, at_columns = np.nonzero(rows)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.searchsorted(at_rows, np.arange(len(rows) + 1)).astype(np.int32)
    model.a_matrix_.index_ = at_columns.astype(np.int32)
    model.a_matrix_.value_ = rows[at_rows, at_columns]
    return model
