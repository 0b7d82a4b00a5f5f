"""The fewest GPUs that hold a fleet, and plans on a given number of GPUs.

Services come first, because they have priority; jobs run in what the services leave. For a number of GPUs, the search
places the jobs in several orders and by several rules. A job that found no place goes to the front of the order, and
the order is tried again. The search begins at a number of GPUs that no placement beneath the services can undercut, and
takes the first number on which every job finds a place; far above its begin it goes in larger steps, and halves the
last one.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from .fleets import TOLERANCE_H, Fleet
from .gaps import Gap
from .jobs import Job, Placed, Placer, Rule
from .layout import Layout, hourly, steady
from .supply import Supply, loads
from .waiting import busy

Window = tuple[Gap, ...]
_REPEATS = 3
_THOROUGH = 3  # numbers of GPUs above the bound that are tried in every order


@dataclass(frozen=True)
class Found:
    """Services and jobs on a number of GPUs.

    Attributes:
        fleet: the workloads.
        layout: the services of each GPU.
        gpus: the number of GPUs.
        placed: the runs of each job that has a place.
        left_out: jobs without a place.
    """

    fleet: Fleet
    layout: Layout
    gpus: int
    placed: Placed
    left_out: tuple[Job, ...]


def fewest_gpus(fleet: Fleet, jobs: Sequence[Job]) -> Found:
    """Return the plan with the fewest GPUs on which all jobs find a place.

    Args:
        fleet: services that can hold their objectives.
        jobs: each fits on GPUs that run nothing else.
    """
    first = _fewest(fleet, jobs, steady(fleet), None)
    assert first is not None  # without a limit, the search goes on until all jobs fit
    other = hourly(fleet)
    if bound(fleet, jobs, other) < first.gpus:
        return _fewest(fleet, jobs, other, first.gpus - 1) or first
    return first


def on_given(fleet: Fleet, jobs: Sequence[Job], gpus: int, *, is_early: bool) -> Found:
    """Return a plan on a number of GPUs; jobs that find no place are left out.

    Args:
        fleet: services that fit on that many GPUs in one of the layouts.
        jobs: they may be too many.
        gpus: the number of GPUs.
        is_early: let jobs end early; otherwise only deadlines count.
    """
    layout = steady(fleet)
    return _best(Supply(fleet, layout if layout.gpus <= gpus else hourly(fleet), gpus), jobs, is_early=is_early)


def bound(fleet: Fleet, jobs: Sequence[Job], layout: Layout) -> int:
    """Return a number of GPUs that no placement beneath this layout undercuts.

    In each window of time, jobs that must run there need no more work than the GPUs can do there.
    """
    supply = Supply(fleet, layout, layout.gpus)
    tracks = [supply.track((gpu,), 0.0) for gpu in range(layout.gpus)]
    least = layout.gpus
    for window in _windows(jobs):
        wanted = sum(_must(job, window) for job in jobs)
        there = sum(track.work(*part) for track in tracks for part in window)
        least = max(least, layout.gpus + ceil((wanted - there) / _length_h(window) - 1e-6))
    return max(least, max((job.gpus for job in jobs), default=0))


def fluid_bound(fleet: Fleet, jobs: Sequence[Job]) -> int:
    """Return a number of GPUs that no plan at all undercuts: hp's and be's work over the time, in each window."""
    bounds_h, everything = fleet.spans(), tuple((index, 1.0) for index in range(len(fleet.services)))
    used = [(begin_h, end_h, busy(loads(fleet, everything, begin_h)))
            for begin_h, end_h in itertools.pairwise(bounds_h)]  # fmt: skip
    least = max((part for _, _, part in used), default=0.0)
    for window in _windows(jobs):
        hp = sum(part * _common_h(((from_h, to_h),), window) for from_h, to_h, part in used)
        wanted = hp + sum(_must(job, window) for job in jobs)
        least = max(least, wanted / _length_h(window))
    return max(ceil(least - 1e-6), max((job.gpus for job in jobs), default=0))


def _windows(jobs: Sequence[Job]) -> list[Window]:
    """Return windows in which jobs may need more than there is: from any begin to any end, and those over midnight."""
    begins, ends = sorted({job.from_h for job in jobs}), sorted({job.by_h for job in jobs})
    found: list[Window] = [((begin_h, end_h),) for begin_h in begins for end_h in ends if end_h > begin_h]
    return found + sorted({job.window for job in jobs if job.closed is not None})


def _must(job: Job, window: Window) -> float:
    """Return the GPU-hours that a job must do within a window."""
    outside_h = job.window_h - _common_h(job.window, window)
    if outside_h <= TOLERANCE_H:
        return job.gpu_h
    return max(0.0, job.work_h - outside_h) * job.gpus


def _common_h(one: Window, other: Window) -> float:
    return sum(max(0.0, min(end_h, to_h) - max(begin_h, from_h)) for begin_h, end_h in one for from_h, to_h in other)


def _length_h(window: Window) -> float:
    return _common_h(window, window)


def _fewest(fleet: Fleet, jobs: Sequence[Job], layout: Layout, most: int | None) -> Found | None:
    least = bound(fleet, jobs, layout)
    enough = least + sum(job.gpus or ceil(job.work_h / job.window_h) for job in jobs)
    too_few, gpus = least - 1, least
    while most is None or too_few < most:
        found = _on(fleet, jobs, layout, gpus, least)
        if not found.left_out or gpus > enough:
            return _fewer(found, jobs, too_few, least)
        too_few = gpus
        gpus += 1 if gpus < least + 2 * _THOROUGH else max(1, gpus // 16)
        gpus = gpus if most is None else min(gpus, most)
    return None


def _fewer(found: Found, jobs: Sequence[Job], too_few: int, least: int) -> Found:
    """Return a plan on fewer GPUs, of the numbers that a large step of the search left out."""
    while not found.left_out and found.gpus - too_few > 1:
        other = _on(found.fleet, jobs, found.layout, (too_few + found.gpus) // 2, least)
        if other.left_out:
            too_few = other.gpus
        else:
            found = other
    return found


def _on(fleet: Fleet, jobs: Sequence[Job], layout: Layout, gpus: int, least: int) -> Found:
    return _best(Supply(fleet, layout, gpus), jobs, is_early=False, is_quick=gpus >= least + _THOROUGH)


def _best(supply: Supply, jobs: Sequence[Job], *, is_early: bool, is_quick: bool = False) -> Found:
    """Return the plan that places all jobs, or the most jobs, or among these the most work."""
    best: tuple[tuple[int, float], Placed, tuple[Job, ...]] | None = None
    rules = (Rule(is_early=True), Rule(is_early=True, fills=True)) if is_early else (Rule(), Rule(fills=True))
    for rule in rules:
        for order in _orders(jobs)[: 2 if is_quick else None]:
            for _ in range(_REPEATS):
                placed, left_out = _in_order(supply, order, rule)
                missing = len(left_out), sum(job.gpu_h for job in left_out)
                if best is None or missing < best[0]:
                    best = missing, placed, left_out
                if not left_out:
                    break
                order = [*left_out, *(job for job in order if job not in set(left_out))]
            if best is not None and not best[2]:
                break
        if best is not None and not best[2]:
            break
    assert best is not None  # there are orders
    return Found(supply.fleet, supply.layout, supply.gpus, best[1], best[2])


def _orders(jobs: Sequence[Job]) -> list[list[Job]]:
    def deadline(job: Job) -> tuple[float, int, float, str, int]:
        return job.by_h, -job.gpus, -job.work_h, job.name, job.copy

    def width(job: Job) -> tuple[bool, int, float, float, str, int]:
        return job.gpus == 0, -job.gpus, job.by_h, -job.work_h, job.name, job.copy

    def batches(job: Job) -> tuple[bool, float, int, float, str, int]:
        return job.gpus > 0, *deadline(job)

    def work(job: Job) -> tuple[float, str, int]:
        return job.gpu_h, job.name, job.copy

    return [sorted(jobs, key=key) for key in (deadline, width, batches, work)]


def _in_order(supply: Supply, order: Sequence[Job], rule: Rule) -> tuple[Placed, tuple[Job, ...]]:
    placer, placed, left_out = Placer(supply, rule), Placed(), []
    for job in order:
        runs = placer.place(job)
        if runs is None:
            left_out.append(job)
        else:
            placed[job.name, job.copy] = runs
    return placed, tuple(left_out)


def without(fleet: Fleet, names: Sequence[str]) -> Fleet:
    """Return the fleet without some workloads."""
    return replace(
        fleet,
        services=tuple(each for each in fleet.services if each.name not in names),
        batches=tuple(each for each in fleet.batches if each.name not in names),
        training=tuple(each for each in fleet.training if each.name not in names),
    )
