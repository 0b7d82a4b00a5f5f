"""Mechanism opt: an integer program chooses the CPUs and memory of each job so that the sum of speeds is largest.

This is Synergy's first program. Synergy's second program splits jobs among servers and changes no speed. The program
knows only the capacities of the whole cluster, so a job may get a demand that no server has room for. The sum of
speeds is therefore an upper bound. Jobs that choose among the same points are one group, and the program counts how
many jobs of a group get each point. The optimum is the same as with one choice for each job, but the program does not
grow with the number of jobs. In a group the first jobs get the fastest points.

The solver is HiGHS. Refused: scipy's wrapper of HiGHS, because scipy is ten times as large.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import highspy
import numpy as np

from .placement import Wish
from .resources import Demand, Server

GAP = 1e-6  # how far the sum of speeds may be below the optimum, relative to the optimum


class Unsolved(ValueError):
    """The solver found no choice."""


def shares(wishes: Sequence[Wish], servers: Sequence[Server]) -> list[Demand]:
    """Return the demand that each of the jobs gets.

    Args:
        wishes: the jobs that run, in their order. The jobs of one group have the same object as `choices`.
        servers: what the servers have.

    Raises:
        Unsolved: the choices do not fit the cluster.
    """
    if _has_room_for_fastest(wishes, servers):
        return [wish.choices[0] for wish in wishes]
    groups: dict[int, list[int]] = {}
    for position, wish in enumerate(wishes):
        groups.setdefault(id(wish.choices), []).append(position)
    # The order of the groups is that of their first jobs, so it depends on the wishes alone.
    choices = tuple(wishes[members[0]].choices for members in groups.values())
    counts = solve(choices, tuple(map(len, groups.values())), servers)
    found: list[Demand | None] = [None] * len(wishes)
    for members, points, numbers in zip(groups.values(), choices, counts, strict=True):
        given = iter(members)
        for point, number in zip(points, numbers, strict=True):  # the fastest point first
            for _ in range(number):
                found[next(given)] = point
    return [each for each in found if each is not None]


def _has_room_for_fastest(wishes: Sequence[Wish], servers: Sequence[Server]) -> bool:
    """Return whether the cluster has enough for the fastest point of each job; no solver is needed then."""
    choices = [wish.choices for wish in wishes]
    fastest = {id(each): each[0] for each in choices}
    jobs = Counter(map(id, choices))
    return sum(fastest[each].cpus * count for each, count in jobs.items()) <= sum(
        server.cpus for server in servers
    ) and sum(fastest[each].memory_gb * count for each, count in jobs.items()) <= sum(
        server.memory_gb for server in servers
    )


def solve(choices: Sequence[Sequence[Demand]], jobs: Sequence[int], servers: Sequence[Server]) -> list[list[int]]:
    """Return how many jobs of each group get each of its points.

    Args:
        choices: the points of each group.
        jobs: the number of jobs of each group.
        servers: what the servers have.

    Raises:
        Unsolved: the choices do not fit the cluster.
    """
    points = [(group, point) for group, those in enumerate(choices) for point in those]
    rows = [[point.cpus for _, point in points], [point.memory_gb for _, point in points]]
    rows += [[float(owner == group) for owner, _ in points] for group in range(len(choices))]
    capacity = [sum(server.cpus for server in servers), sum(server.memory_gb for server in servers)]
    model = _model(
        cost=[point.speed for _, point in points],
        most=[float(jobs[group]) for group, _ in points],
        rows=np.array(rows),
        lower=[-highspy.kHighsInf, -highspy.kHighsInf, *map(float, jobs)],
        upper=[*capacity, *map(float, jobs)],
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
