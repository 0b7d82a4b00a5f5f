"""The plan of a scenario that has none: a planner decides from the services' profiles, highest rates and objectives."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orion.errors import Invalid, NotFound
from orion.planning.serving.cases import Limits, Measured, Model
from orion.planning.serving.cases import Service as Asked
from orion.planning.serving.latency import Latency
from orion.planning.serving.orion import choosing, costs
from orion.planning.serving.orion import services as orion
from orion.planning.serving.orion.beneath import Beneath
from orion.planning.serving.planners import PLANNERS
from orion.planning.serving.plans import Plan

from .arriving import requests
from .planned_engines import engines
from .setting import Service, Setting

SHARES = (20, 40, 50, 60, 80, 100)
""" The shares whose times the planners of glet compare; the batches go to MAX_BATCH. """
MAX_BATCH = 32


def check_name(planner: str) -> None:
    """Check that a planner exists.

    Raises:
        Invalid: there is no such planner.
    """
    if planner not in PLANNERS:
        raise Invalid(f"--planner cannot be {planner!r}: the planners are {', '.join(PLANNERS)}")


@dataclass(frozen=True)
class Planned:
    """What a planner decides for a scenario.

    Attributes:
        plan: the services on parts of GPUs.
        beneath: best-effort work beneath the services, on the scenario's GPUs.
    """

    plan: Plan
    beneath: tuple[Beneath, ...] = ()


def plan(setting: Setting, planner: str, running: Plan | None = None) -> Planned:
    """Return a planner's plan for a scenario.

    Args:
        setting: the scenario.
        planner: the planner's name.
        running: a plan that runs now, of which the planner orion keeps as much as it can.

    Raises:
        Invalid: there is no such planner.
        NotFound: the planner finds no plan, or cannot plan this scenario; with the reason.
    """
    check_name(planner)
    if setting.best_effort and planner != "orion":
        raise NotFound(
            f"{setting.source}: the planner {planner} puts nothing beneath services: leave out bestEffort, or use the "
            "planner orion"
        )
    parts, reasons = engines(setting)
    taken = {part.gpu for part in parts}
    free = [number for number in range(len(setting.gpus)) if number not in taken]
    batched = tuple(service for service in setting.services if service.engine is None)
    if not batched:
        return Planned(Plan(parts, " ".join(reasons)))
    if not free:
        raise NotFound(f"{setting.source}: engines take all GPUs, and {batched[0].name} needs one: add GPUs")
    rest = replace(setting, gpus=tuple(setting.gpus[number] for number in free), services=batched)
    planned = _batched(rest, planner, None if running is None else _with_gpus(running, free))
    found = planned.plan
    parts = (*(replace(part, gpu=free[part.gpu]) for part in found.parts), *parts)
    beneath = tuple(replace(each, gpu=free[each.gpu]) for each in planned.beneath)
    return Planned(Plan(parts, " ".join(text for text in (found.reason, *reasons) if text)), beneath)


def plain_beneath(setting: Setting, found: Planned) -> list[dict[str, Any]]:
    """Return where best-effort work runs, as JSON; null: beneath no GPU's services."""
    placed = {each.name: each for each in found.beneath}
    return [
        {
            "name": job.name,
            "gpu": setting.gpus[placed[job.name].gpu].name if job.name in placed else None,
            "speed": placed[job.name].speed if job.name in placed else None,
        }
        for job in setting.best_effort
    ]


def _with_gpus(running: Plan, numbers: Sequence[int]) -> Plan:
    """Return a plan's parts on some GPUs, numbered by their places among these."""
    return Plan(tuple(replace(part, gpu=numbers.index(part.gpu)) for part in running.parts if part.gpu in numbers))


def _batched(setting: Setting, planner: str, running: Plan | None) -> Planned:
    """Return the plan of a scenario without engines."""
    for service in setting.services:
        _check(setting, service, planner)
    found = _by_orion(setting, running) if planner == "orion" else Planned(_by_number(setting, planner))
    if not found.plan.is_schedulable:
        raise NotFound(
            f"{setting.source}: the planner {planner} finds no plan ({found.plan.reason}): add GPUs, lower a rate, or "
            "relax an objective"
        )
    return found


def _check(setting: Setting, service: Service, planner: str) -> None:
    start = f"{setting.source}: the planner {planner}"
    latency = service.latency or Latency({})
    best_ms = min(latency.ms(1, share) for share in latency.points)
    limit_ms = service.objective.latency / 1e6
    if best_ms > limit_ms:
        raise NotFound(
            f"{start} finds no plan: nothing can hold the objective of {limit_ms:g} ms of the service {service.name}, "
            f"because one request takes at least {best_ms:g} ms: raise the objective"
        )


def _by_orion(setting: Setting, running: Plan | None) -> Planned:
    """Return the plan of the planner orion, which knows types of GPU and slowdowns."""
    of_kind: dict[tuple[str, float], list[int]] = {}
    for number, gpu in enumerate(setting.gpus):
        of_kind.setdefault((gpu.type, gpu.memory_gb), []).append(number)
    profiles = {service.name: _profile(service) for service in setting.services}
    gpus, services = [], []
    for (name, memory_gb), numbers in of_kind.items():
        slowdown = _slowdown(setting, name, profiles)
        cost = costs.known(name)
        switch_ms = 0.0 if cost is None else cost.busy_period_ms.value
        kind = _kind_name(name, memory_gb)
        gpus.append(orion.GpuType(kind, len(numbers), memory_gb * 1000, slowdown, switch_ms=switch_ms))
    for number, service in enumerate(setting.services):
        fitting = [kind for kind, numbers in of_kind.items() if service.fits(setting.gpus[numbers[0]])]
        known = {_kind_name(*kind): profiles[service.name] for kind in fitting}
        limit_ms, quantile = service.objective.latency / 1e6, service.objective.quantile
        services.append(
            orion.Service(
                service.name,
                _rate(setting, number),
                limit_ms,
                known,
                quantile,
                service.runs_in,
                service.max_delay / 1e6,
            )
        )
    positions = [number for numbers in of_kind.values() for number in numbers]
    previous = None if running is None else _with_gpus(running, positions)
    decided = choosing.plan(services, gpus, best_effort=setting.best_effort, previous=previous)
    parts = tuple(replace(part, gpu=positions[part.gpu]) for part in decided.plan.parts)
    why = (
        each.why.replace(f"GPU {each.gpu}: ", f"{setting.gpus[positions[each.gpu]].name}: ", 1) for each in decided.gpus
    )
    beneath = tuple(replace(each, gpu=positions[each.gpu]) for each in decided.beneath)
    return Planned(replace(decided.plan, parts=parts, reason=" ".join(why) or decided.plan.reason), beneath)


def _profile(service: Service) -> orion.Profile:
    """Return what was measured, with shares in whole percent and up to the largest batch that every share has."""
    points = service.latency.points if service.latency is not None else {}
    latency = Latency({share: times for share, times in points.items() if share == round(share)} or points)
    largest = min(max(times) for times in latency.points.values())
    return orion.Profile(latency, service.memory_gb * 1000, max_batch=largest)


def _kind_name(gpu_type: str, memory_gb: float) -> str:
    return f"{gpu_type or 'GPU'} of {memory_gb:g} GB"


def _slowdown(setting: Setting, gpu_type: str, profiles: Mapping[str, orion.Profile]) -> orion.Slowdown:
    """Return the scenario's slowdowns; if it has none, what sharing costs on a known type of GPU."""
    if not setting.slowdowns:
        cost = costs.known(gpu_type)
        return orion.undisturbed if cost is None else _slowdown_of_costs(setting, cost, profiles)

    def slowed(mine: orion.Occupant, others: Sequence[orion.Occupant]) -> float:
        factors = setting.slowdowns.get(mine.service, {})
        return max((factors.get(each.service, 1.0) for each in others), default=1.0)

    return slowed


def _slowdown_of_costs(setting: Setting, cost: costs.Costs, profiles: Mapping[str, orion.Profile]) -> orion.Slowdown:
    """Return what sharing costs on a GPU, where services of one process pay for no second client."""
    apart, together = costs.slowdown(cost, profiles), costs.slowdown(cost, profiles, one_process=True)

    def slowed(mine: orion.Occupant, others: Sequence[orion.Occupant]) -> float:
        is_one = setting.in_one_process(each.service for each in (mine, *others))
        return (together if is_one else apart)(mine, others)

    return slowed


def _by_number(setting: Setting, planner: str) -> Plan:
    """Return the plan of a planner that treats all GPUs as equal, and names services by numbers."""
    for service in setting.services:
        start = f"{setting.source}: the planner {planner}"
        others = [gpu for gpu in setting.gpus if not service.fits(gpu)]
        if others:
            raise NotFound(
                f"{start} takes all GPUs as alike, and the profile of the service {service.name} was measured on "
                f"{service.gpu_model}, not on {others[0].type}: use the planner orion"
            )
        if service.latency is not None and len(service.latency.points) == 1 and planner != "temporal":
            raise NotFound(
                f"{start} divides GPUs, and the service {service.name} was measured with one share only: measure more "
                "shares, or use the planner orion or temporal"
            )
    models = {number: _model(number, service) for number, service in enumerate(setting.services)}
    memory_mb = min(gpu.memory_gb for gpu in setting.gpus) * 1000
    decide = PLANNERS[planner](Measured(models, memory_mb, 0.0, MAX_BATCH), Limits(len(setting.gpus)))
    asked = [
        Asked(number, _rate(setting, number), service.objective.latency / 1e6)
        for number, service in enumerate(setting.services)
    ]
    return _with_names(decide(asked), setting)


def _model(number: int, service: Service) -> Model:
    """Return a service as a model with every time that a planner looks up.

    Below the smallest measured share, times grow as the share shrinks: a planner must not gain by what nobody measured.
    """
    latency = service.latency or Latency({})
    shares, smallest = sorted({*SHARES, *latency.points}), min(latency.points)
    times = {
        share: {batch: latency.ms(batch, share) * max(1.0, smallest / share) for batch in range(1, MAX_BATCH + 1)}
        for share in shares
    }
    return Model(number, service.name, Latency(times), (0.0,), service.memory_gb * 1000)


def _rate(setting: Setting, number: int) -> float:
    """Return a service's highest rate; the mean rate if its arrivals come from a file."""
    service = setting.services[number]
    if service.rates is not None:
        return max((rate for at, rate in service.rates.steps if at < setting.seconds), default=0.0)
    arrivals = requests(service, setting.seconds, (setting.seed, number)).arrivals
    seconds = setting.seconds if math.isfinite(setting.seconds) else arrivals.max(initial=0.0) / 1e9
    return len(arrivals) / seconds if seconds else 0.0


def _with_names(found: Plan, setting: Setting) -> Plan:
    """Return a plan with the services' names in place of their numbers."""
    return replace(
        found,
        parts=tuple(
            replace(
                part,
                services=tuple(
                    replace(each, service=setting.services[int(each.service)].name) for each in part.services
                ),
            )
            for part in found.parts
        ),
    )
