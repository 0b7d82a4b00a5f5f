"""Reads a scenario's file, and checks its fields against each other: names, shares, memory, files beside it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from orion.crds.profile_file import parse_profile
from orion.errors import Unreadable
from orion.planning.serving.latency import Latency
from orion.planning.serving.orion.services import BestEffort
from orion.planning.serving.plans import Assignment, Part, Plan
from orion.simulation import yaml_files
from orion.simulation.engine.batching import Engine
from orion.simulation.written import checked

from . import rates, scenario
from .batches import Drop
from .rates import MOST_REQUESTS, Rates
from .setting import Gpu, Objective, Service, Setting


def read(path: Path) -> Setting:
    """Read a scenario.

    Raises:
        Unreadable: a file cannot be read, or does not fit together; with a sentence.
    """
    plain = yaml_files.read(path, "a scenario of services as YAML")
    written = checked(path, scenario.Scenario, plain)
    try:
        return _setting(written, path)
    except ValueError as error:
        raise Unreadable(f"{path}: {error}") from error


def _setting(written: scenario.Scenario, path: Path) -> Setting:
    folder = path.parent
    gpus = tuple(Gpu(each.name, each.type, each.memory or math.inf) for each in written.gpus)
    services = tuple(_service(each, folder) for each in written.services)
    seconds = math.inf if written.seconds is None else written.seconds
    for service in services:
        expected = service.rates.expected(seconds) if service.rates is not None else 0.0
        if expected > MOST_REQUESTS:
            raise ValueError(
                f"the service {service.name} gets {expected:.3g} requests, and a simulation has at most "
                f"{MOST_REQUESTS:,}: lower seconds or the rate"
            )
    for name in (*written.slowdowns, *(name for each in written.slowdowns.values() for name in each)):
        _known(name, "service", [service.name for service in services], "slowdowns")
    setting = Setting(
        path, gpus, services, None, seconds, written.seed, Drop(written.drop.rule, written.drop.ratio),
        tuple(folder / name for service in written.services for name in _files(service)), written.slowdowns,
        written.slices.slice.exact_nanoseconds, written.slices.change.exact_nanoseconds,
        tuple(BestEffort(each.name, each.memory * 1000, each.slowdown) for each in written.best_effort),
    )  # fmt: skip
    if written.plan is None:
        return setting
    plan = _plan(written.plan, gpus, services)
    check(setting, plan)
    return replace(setting, plan=_with_throughput(setting, plan))


def _service(written: scenario.Service, folder: Path) -> Service:
    objective = written.objective
    limits = (objective.latency, objective.time_to_first_token, objective.time_per_output_token)
    latency_ns, first_ns, output_ns = (math.inf if each is None else each.exact_nanoseconds for each in limits)
    found = Objective(latency_ns, first_ns, output_ns, objective.quantile)
    arrivals = written.arrivals
    file = folder / arrivals.file if arrivals is not None and arrivals.file is not None else None
    process = (arrivals.process if arrivals is not None else None) or "poisson"
    engine = None if written.engine is None else _engine(written.engine)
    latency, gpu_model = (None, "") if engine is not None else _latency(written, folder)
    lengths = written.lengths
    if lengths is not None and lengths.file is not None:
        lengths = lengths.model_copy(update={"file": str(folder / lengths.file)})
    delay = written.max_delay.exact_nanoseconds
    return Service(
        written.name, found, written.memory, latency, engine, _rates(written, folder), process, file, lengths,
        gpu_model, delay, written.process,
    )  # fmt: skip


def _files(written: scenario.Service) -> Iterator[str]:
    """Yield the names of the files that a service is read from."""
    arrivals, lengths = written.arrivals, written.lengths
    for name in (
        written.profile,
        written.rates_file,
        arrivals.file if arrivals is not None else None,
        lengths.file if lengths is not None else None,
    ):
        if name is not None:
            yield name


def _rates(written: scenario.Service, folder: Path) -> Rates | None:
    if written.rates_file is not None:
        return rates.read(folder / written.rates_file)
    return None if written.rate is None else rates.constant(written.rate)


def _engine(written: scenario.Engine) -> Engine:
    return Engine(
        step_base=written.step_base.exact_nanoseconds,
        prefill_token=written.prefill_token.exact_nanoseconds,
        decode_sequence=written.decode_sequence.exact_nanoseconds,
        context_token=written.context_token.exact_nanoseconds,
        max_sequences=written.max_sequences,
        tokens_per_step=written.tokens_per_step,
        kv_tokens=written.kv_tokens,
        admission=written.admission,
    )


def _latency(written: scenario.Service, folder: Path) -> tuple[Latency, str]:
    """Return the times of batches, and the GPU model on which a profile was measured."""
    points: list[tuple[int, float, float]] = []
    gpu_model = ""
    if written.latency is not None:
        points = [(each.batch, each.sm_share, each.median_ns) for each in written.latency]
    elif written.profile is not None:
        points, gpu_model = _profile(folder / written.profile)
    by_share: dict[float, dict[int, float]] = {}
    for batch, share, median_ns in points:
        percent = round(100 * share, 9)
        times = by_share.setdefault(int(percent) if percent.is_integer() else percent, {})
        if batch in times:
            raise ValueError(f"the service {written.name}: batch {batch} at smShare {share:g} is there twice")
        times[batch] = median_ns / 1e6
    return Latency(cast("Mapping[int, Mapping[int, float]]", by_share)), gpu_model


def _profile(path: Path) -> tuple[list[tuple[int, float, float]], str]:
    try:
        spec = parse_profile(path.read_text(encoding="utf-8"), str(path)).spec
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}; check it") from error
    if not spec.latency:
        raise Unreadable(f"{path} has no latency: measure it with `orion profile load`")
    return [(each.batch, each.sm_share, each.median_ns) for each in spec.latency], spec.gpu.model or ""


def _known(name: str, kind: str, names: Sequence[str], where: str) -> int:
    """Return the position of a name; refuse a name that does not exist."""
    if name not in names:
        raise ValueError(f"{where}: there is no {kind} {name!r}; there are {', '.join(names[:20])}")
    return names.index(name)


def _plan(written: Sequence[scenario.Part], gpus: Sequence[Gpu], services: Sequence[Service]) -> Plan:
    parts: list[Part] = []
    for number, part in enumerate(written):
        where = f"plan[{number}]"
        gpu = _known(part.gpu, "GPU", [each.name for each in gpus], where)
        share = part.share * 100 if part.share <= 1 else part.share
        if abs(share - round(share)) > 1e-9:
            raise ValueError(f"{where}: the share {share:g} % is no whole number of percent")
        for each in part.services:
            _known(each.name, "service", [service.name for service in services], where)
        way = part.way or ("part" if share < 100 else "turns" if len(part.services) > 1 else "exclusive")
        copy = sum((other.gpu, other.share) == (gpu, round(share)) for other in parts)
        assigned = tuple(
            Assignment(each.name, each.batch, each.throughput or 0.0, each.max_delay.nanoseconds / 1e6)
            for each in part.services
        )
        parts.append(Part(gpu, round(share), copy, way, part.order, assigned))
    return Plan(tuple(parts))


def check(setting: Setting, plan: Plan) -> None:
    """Check that a plan gives out no more than there is.

    Raises:
        ValueError: with a sentence.
    """
    by_name = {service.name: service for service in setting.services}
    for part in plan.parts:
        _check_part(setting, part, by_name)
    for number, gpu in enumerate(setting.gpus):
        parts = [part for part in plan.parts if part.gpu == number]
        shares = [part.share for part in parts]
        if sum(shares) > 100:
            raise ValueError(f"the parts of GPU {gpu.name} have {sum(shares)} % of it together: give at most 100 %")
        memory_gb = math.fsum(by_name[each.service].memory_gb for part in parts for each in part.services)
        if memory_gb > gpu.memory_gb:
            raise ValueError(
                f"the services of GPU {gpu.name} need {memory_gb:.6g} GB of its {gpu.memory_gb:.6g} GB: "
                "move a service to another GPU"
            )


def _check_part(setting: Setting, part: Part, services: Mapping[str, Service]) -> None:
    gpu, names = setting.gpus[part.gpu].name, [each.service for each in part.services]
    for name in names:
        if not services[name].fits(setting.gpus[part.gpu]):
            raise ValueError(
                f"the profile of the service {name} was measured on {services[name].gpu_model}, and GPU {gpu} is of "
                f"type {setting.gpus[part.gpu].type}: measure a profile there"
            )
        if names.count(name) > 1:
            raise ValueError(f"a part of GPU {gpu} has the service {name} twice: give it once, or on two parts")
        if services[name].engine is not None and len(names) > 1:
            raise ValueError(f"the service {name} has an engine, which shares no part: give it a part of its own")
    if part.way == "exclusive" and len(names) > 1:
        raise ValueError(f"GPU {gpu} is exclusive and has {len(names)} services: write `way: turns`")


def _with_throughput(setting: Setting, plan: Plan) -> Plan:
    """Return a plan whose services have a throughput everywhere.

    Where the file gives none, a part serves one full batch of each of its services after the other; an engine counts as
    1 request/s.
    """
    parts = []
    for part in plan.parts:
        whole_ns = sum(setting.times(plan, part, each)[-1] for each in part.services)  # one full batch of each service
        assigned = tuple(
            replace(each, throughput=each.throughput or (each.batch * 1e9 / whole_ns if whole_ns else 1.0))
            for each in part.services
        )
        parts.append(replace(part, services=assigned))
    return replace(plan, parts=tuple(parts))
