"""Why something does not fit, and the smallest change that would help, in a sentence."""

from collections.abc import Sequence
from dataclasses import replace

from .fleets import TOLERANCE_H, Batch, Fleet, Service, Training, Unplaced
from .jobs import Job, Placer, Rule
from .layout import fewest
from .search import Found
from .separate import alone
from .supply import Supply
from .waiting import highest_rate

_LONGEST_H = 14 * 24.0  # how far a late end is searched
MOST_GPUS = 10_000
""" The most GPUs that one workload may take. """


def impossible(fleet: Fleet) -> list[Unplaced]:
    """Return the workloads that no number of GPUs can run, with the reason of each."""
    found = []
    workloads: list[Service | Batch | Training] = [*fleet.services, *fleet.batches, *fleet.training]
    for each in workloads:
        reason = _memory(fleet, each)
        if not reason:
            reason = _objective(each) if isinstance(each, Service) else _time(each)
        if reason:
            found.append(Unplaced(each.name, reason))
    return found


def _memory(fleet: Fleet, each: Service | Batch | Training) -> str:
    if each.memory_gb <= fleet.memory_gb + 1e-9:
        return ""
    return f"it needs {each.memory_gb:g} GB on a GPU, and a GPU has {fleet.memory_gb:g} GB: reduce memory to that"


def _objective(service: Service) -> str:
    if service.objective_s < service.service_s:
        return (
            f"no number of GPUs holds {_ms(service.objective_s)}: one request takes {_ms(service.service_s)}; "
            f"the best objective is {_ms(service.service_s)}: raise objective to that"
        )
    highest = highest_rate(service.service_s, service.objective_s)
    if service.peak > 0 and (highest <= 0 or fewest(service, service.peak, 0.0) > MOST_GPUS):
        return (
            f"{service.peak:g} requests/s within {_ms(service.objective_s)} need more than {MOST_GPUS} GPUs: "
            "reduce rate or raise objective"
        )
    return ""


def _time(each: Batch | Training) -> str:
    if (needed := alone(each)) > MOST_GPUS:
        return f"it needs {needed:.3g} GPUs of its own, and a plan has at most {MOST_GPUS}: reduce work or count"
    if isinstance(each, Batch) or each.alone_h <= each.by_h + TOLERANCE_H or not each.count:
        return ""
    gpus = -(-each.work_gpu_h // each.by_h)
    return (
        f"one job takes {_h(each.alone_h)} on {each.gpus} GPUs without other work, and by is {_h(each.by_h)}: "
        f"set by to {_up(each.alone_h):g} or later, or gpus to {gpus:g} or more"
    )


def left_out(fleet: Fleet, found: Found, services: Sequence[str], needed: int) -> list[Unplaced]:
    """Return what found no place on the given GPUs, and what would help.

    Args:
        fleet: the fleet without the services that found no place.
        found: the plan.
        services: the names of the services that found no place.
        needed: the GPUs on which everything fits.
    """
    more = f"set gpus.atMost to {needed}"
    reasons = [
        Unplaced(name, f"{found.gpus} GPUs do not hold its objective beside the services before it: {more}")
        for name in services
    ]
    by_name: dict[str, list[Job]] = {}
    for job in found.left_out:
        by_name.setdefault(job.name, []).append(job)
    counts = {each.name: each.count for each in fleet.training}
    for name, jobs in by_name.items():
        what = f"{len(jobs)} of {counts[name]} jobs find" if counts.get(name, 1) > 1 else "it finds"
        job, end_h = jobs[0], late_end_h(fleet, found, jobs[0])
        limit = "by" if job.gpus else "between"
        late = ""
        if end_h is not None:
            late = f", or the end of {limit} from {job.by_h:.4g} to {_up(end_h):g}"
        wanted = f"{job.gpus} GPUs at once" if job.gpus > 1 else f"{job.gpu_h:.4g} GPU-hours"
        if job.gpus > found.gpus:
            reason = f"it needs {job.gpus} GPUs at once, and there are {found.gpus}"
        else:
            reason = f"{what} no free time for {wanted} {_limit(job)} on {found.gpus} GPUs"
        reasons.append(Unplaced(name, f"{reason}: {more}{late}"))
    return reasons


def late_end_h(fleet: Fleet, found: Found, job: Job) -> float | None:
    """Return when a job that found no place would end if it had no deadline; None if not within two weeks."""
    if job.gpus > found.gpus or job.closed is not None:  # hours after midnight are those of the plan's begin
        return None
    supply = Supply(fleet, found.layout, found.gpus, fleet.hours + _LONGEST_H)
    placer = Placer(supply, Rule(is_early=True))
    for runs in found.placed.values():
        for run in runs:
            placer.gaps.hold(run)
    runs_late = placer.place(replace(job, by_h=fleet.hours + _LONGEST_H))
    return max((run.to_h for run in runs_late), default=None) if runs_late else None


def _up(hours: float) -> float:
    """Return hours rounded up to a hundredth, so that the change that is named is enough."""
    return -(-round(hours * 100, 6) // 1) / 100


def _limit(job: Job) -> str:
    if job.closed is None:
        return f"before {_h(job.by_h)}"
    return f"between {job.closed[1]:.4g} h and {job.closed[0]:.4g} h of the next day"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"


def _h(hours: float) -> str:
    return f"{hours:.4g} h"
