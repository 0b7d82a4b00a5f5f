"""The plan of a fleet: GPUs apart and shared, who runs where and when, what does not fit and what would help."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from . import reasons
from .beneath import choices
from .fleets import TOLERANCE_H, Batch, End, Fleet, Placement, Service, Training, Unplaced
from .gaps import Run
from .jobs import Job, all_jobs
from .layout import hourly, steady
from .search import Found, bound, fewest_gpus, fluid_bound, on_given, without
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
        asked: the fleet; the order of its workloads changes nothing but the order in which the plan lists them.
        is_finish: whether jobs should end early on all GPUs that there are; `at_most` must be given then.
    """
    found = _plan(_by_name(asked), is_finish=is_finish)
    kept = {each.name: each for each in found.fleet.services}
    workloads: list[Service | Batch | Training] = [*asked.services, *asked.batches, *asked.training]
    places = {each.name: place for place, each in enumerate(workloads)}
    given = without(asked, [each.name for each in found.unplaced if each.name not in found.separate])
    return replace(
        found,
        fleet=replace(given, services=tuple(kept[each.name] for each in given.services if each.name in kept)),
        separate={each.name: found.separate[each.name] for each in workloads if each.name in found.separate},
        ends=tuple(sorted(found.ends, key=lambda each: (places[each.name], each.copy))),
        unplaced=tuple(sorted(found.unplaced, key=lambda each: places[each.name])),
    )


def _by_name(fleet: Fleet) -> Fleet:
    """Return the fleet in one order, because ties are decided by the order of workloads."""
    return replace(
        fleet,
        services=tuple(sorted(fleet.services, key=lambda each: each.name)),
        batches=tuple(sorted(fleet.batches, key=lambda each: each.name)),
        training=tuple(sorted(fleet.training, key=lambda each: each.name)),
    )


def _plan(asked: Fleet, *, is_finish: bool) -> FleetPlan:
    impossible = reasons.impossible(asked)
    fleet = without(asked, [each.name for each in impossible])
    jobs = all_jobs(fleet)
    most = fleet.at_most
    separated = separate(fleet)
    full = None if is_finish else _fewest(fleet, jobs)
    if full is not None and (most is None or full.gpus <= most):
        fleet = full.fleet
        early = on_given(fleet, jobs, full.gpus, is_early=True)
        found = full if early.left_out else early
        left = reasons.left_out(fleet, found, (), found.gpus)
    else:
        assert most is not None
        found, dropped = _on_given(fleet, jobs, most, is_early=is_finish)
        full = full or (_fewest(fleet, jobs) if dropped or found.left_out else None)
        left = reasons.left_out(found.fleet, found, dropped, full.gpus if full else most)
        fleet = found.fleet
    return FleetPlan(
        fleet, separated, found.gpus, full.gpus if full else None,
        fluid_bound(fleet, [job for job in jobs if job not in set(found.left_out)]), found.layout.name,
        _placements(fleet, found, jobs), _ends(found, jobs), (*impossible, *left),
    )  # fmt: skip


def _fewest(fleet: Fleet, jobs: Sequence[Job]) -> Found:
    """Return the plan with the fewest GPUs; at equal numbers, best-effort work runs beneath as many services as can."""
    first, *others = choices(fleet)
    best = fewest_gpus(first, jobs)
    for other in others:
        if min(bound(other, jobs, layout) for layout in (steady(other), hourly(other))) < best.gpus:
            best = min(best, fewest_gpus(other, jobs), key=lambda found: found.gpus)
    return best


def _on_given(fleet: Fleet, jobs: Sequence[Job], gpus: int, *, is_early: bool) -> tuple[Found, list[str]]:
    """Return the plan that leaves out the fewest services, then the fewest jobs; and the services without a place."""
    best: tuple[Found, list[str]] | None = None
    for each in choices(fleet):
        kept, dropped = _services_that_fit(each, gpus)
        found = on_given(kept, jobs, gpus, is_early=is_early)
        if best is None or (len(dropped), len(found.left_out)) < (len(best[1]), len(best[0].left_out)):
            best = found, dropped
        if not best[1] and not best[0].left_out:
            break
    assert best is not None  # there is a choice
    return best


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
        ends.append(End(job.name, job.copy, None if runs is None else job.end_h(runs)))
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
