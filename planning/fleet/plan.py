"""The plan of a fleet: GPUs apart and shared, who runs where and when, what does not fit and what would help."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from . import reasons
from .fleets import TOLERANCE_H, End, Fleet, Placement, Unplaced
from .gaps import Run
from .jobs import Job, all_jobs
from .layout import hourly, steady
from .search import Found, fewest_gpus, fluid_bound, on_given, without
from .separate import separate
from .supply import Supply


@dataclass(frozen=True)
class FleetPlan:
    """The answer for a fleet.

    Attributes:
        fleet: the fleet without what no number of GPUs can run.
        separate: the GPUs of each workload if each has GPUs of its own.
        gpus: the GPUs of the plan.
        needed: the GPUs on which everything that is possible fits; None if that was not asked.
        bound: no plan can have fewer GPUs than this.
        layout: `steady` or `hourly`.
        placements: who runs where, by GPU and time.
        ends: when each job and each batch has ended.
        unplaced: what the plan leaves out, and why.
    """

    fleet: Fleet
    separate: dict[str, int]
    gpus: int
    needed: int | None
    bound: int
    layout: str
    placements: tuple[Placement, ...]
    ends: tuple[End, ...]
    unplaced: tuple[Unplaced, ...]


def plan(asked: Fleet, *, is_finish: bool = False) -> FleetPlan:
    """Return the plan with the fewest GPUs, or the one with early ends on `at_most` GPUs.

    Args:
        asked: the fleet.
        is_finish: whether jobs should end early on all GPUs that there are; `at_most` must be given then.
    """
    impossible = reasons.impossible(asked)
    fleet = without(asked, [each.name for each in impossible])
    jobs = all_jobs(fleet.batches, fleet.training)
    most = fleet.at_most
    full = None if is_finish else fewest_gpus(fleet, jobs)
    if full is not None and (most is None or full.gpus <= most):
        early = on_given(fleet, jobs, full.gpus, is_early=True)
        found = full if early.left_out else early
        left = reasons.left_out(fleet, found, (), found.gpus)
    else:
        assert most is not None
        kept, dropped = _services_that_fit(fleet, most)
        found = on_given(kept, jobs, most, is_early=is_finish)
        full = full or (fewest_gpus(fleet, jobs) if dropped or found.left_out else None)
        left = reasons.left_out(kept, found, dropped, full.gpus if full else most)
        fleet = kept
    return FleetPlan(
        fleet, separate(without(asked, [each.name for each in impossible])), found.gpus, full.gpus if full else None,
        fluid_bound(fleet, [job for job in jobs if job not in set(found.left_out)]), found.layout.name,
        _placements(fleet, found, jobs), _ends(found, jobs), (*impossible, *left),
    )  # fmt: skip


def _services_that_fit(fleet: Fleet, gpus: int) -> tuple[Fleet, list[str]]:
    """Return the fleet with the services that fit on a number of GPUs, and the names of the others.

    Services that need few GPUs come first, so that as many services as possible fit.
    """
    kept, dropped = replace(fleet, services=()), []
    alone = {each.name: steady(replace(fleet, services=(each,))).gpus for each in fleet.services}
    for service in sorted(fleet.services, key=lambda each: alone[each.name]):
        more = replace(fleet, services=tuple(each for each in fleet.services if each in (*kept.services, service)))
        if steady(more).gpus <= gpus or hourly(more).gpus <= gpus:
            kept = more
        else:
            dropped.append(service.name)
    return kept, dropped


def _ends(found: Found, jobs: Sequence[Job]) -> tuple[End, ...]:
    ends = []
    for job in jobs:
        runs = found.placed.get((job.name, job.copy))
        end_h = None if runs is None else max((run.to_h for run in runs), default=job.from_h)
        ends.append(End(job.name, job.copy, end_h))
    return tuple(ends)


def _placements(fleet: Fleet, found: Found, jobs: Sequence[Job]) -> tuple[Placement, ...]:
    supply = Supply(fleet, found.layout, found.gpus)
    pieces = [*_services(fleet, found)]
    for job in jobs:
        for run in found.placed.get((job.name, job.copy), ()):
            pieces += _run(supply, found, job, run)
    return tuple(sorted(pieces, key=lambda each: (each.gpu, each.from_h, each.role == "be", each.workload, each.copy)))


def _services(fleet: Fleet, found: Found) -> list[Placement]:
    """Return the services' placements; spans in which nothing changes on a GPU are one placement."""
    open_pieces: dict[tuple[int, str], Placement] = {}
    closed: list[Placement] = []
    bounds_h = found.layout.bounds_h
    for begin_h, end_h, span in zip(bounds_h[:-1], bounds_h[1:], found.layout.parts, strict=True):
        for gpu, parts in enumerate(span):
            for index, part in parts:
                service = fleet.services[index]
                piece = Placement(
                    gpu, service.name, 0, "hp", "turns" if len(parts) > 1 else "exclusive", begin_h, end_h,
                    service.rate(begin_h) * part, 0.0, service.memory_gb,
                )  # fmt: skip
                before = open_pieces.pop((gpu, service.name), None)
                if before and replace(before, from_h=begin_h, to_h=end_h) == piece and before.to_h == begin_h:
                    piece = replace(piece, from_h=before.from_h)
                elif before:
                    closed.append(before)
                open_pieces[gpu, service.name] = piece
    return [*closed, *open_pieces.values()]


def _run(supply: Supply, found: Found, job: Job, run: Run) -> list[Placement]:
    """Return the placements of a run: one for each GPU and each time of constant speed."""
    track, pieces, lost_h = supply.track(run.gpus, job.memory_gb), [], run.lost_h
    cuts = [run.from_h, *(at_h for at_h in track.bounds_h if run.from_h < at_h < run.to_h), run.to_h]
    for begin_h, end_h in itertools.pairwise(cuts):
        done_h = track.work(begin_h, end_h)
        work_h = max(0.0, done_h - lost_h)
        lost_h = max(0.0, lost_h - done_h)
        for gpu in run.gpus:
            way = "beneath" if _has_service(found, gpu, begin_h) else "exclusive"
            piece = Placement(gpu, job.name, job.copy, "be", way, begin_h, end_h, 0.0, work_h, job.memory_gb)
            pieces.append(piece)
    return pieces


def _has_service(found: Found, gpu: int, at_h: float) -> bool:
    bounds_h = found.layout.bounds_h
    span = max(at for at, begin_h in enumerate(bounds_h[:-1]) if begin_h <= at_h + TOLERANCE_H)
    parts = found.layout.parts[span]
    return gpu < len(parts) and bool(parts[gpu])
