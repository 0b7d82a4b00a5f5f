"""What services will feel under a plan: the 99th percentile of latencies over the plan's time, and the misses."""

import itertools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orion.planning.fleet.fleets import Fleet, Placement, Service
from orion.simulation.serving.batches import Queue, serve

_REQUESTS, _LEAST, _MOST, _LEAST_OF_CASE = 600_000, 30_000, 300_000, 300
_NS = 1e9

_Case = tuple[tuple[tuple[str, float], ...], bool]  # (service, rate) of a GPU; whether best-effort work is beneath


@dataclass(frozen=True)
class Felt:
    """What the users of one service feel.

    Attributes:
        gpus: the GPUs that the service has at its busiest time.
        p99_ms: 99 of 100 requests are faster; None without requests.
        miss_ratio: the part of requests that miss the objective; None without requests.
    """

    name: str
    gpus: int
    p99_ms: float | None
    miss_ratio: float | None


def feel(fleet: Fleet, placements: Sequence[Placement], seed: int) -> list[Felt]:
    """Return what each service will feel.

    A GPU's load is constant between the bounds of placements. Each different load is simulated for as many requests as
    its part of the day says, with and without best-effort work for the same requests, so that two plans differ by what
    sharing does and not by chance. A request that finds its GPU without other requests, and best-effort work on the
    GPU, begins `switch` late.

    Args:
        fleet: the services.
        placements: who runs where.
        seed: the random numbers.
    """
    cases = _cases(placements)
    latencies = _simulated(fleet, cases, seed)
    return [_felt(each, placements, cases, latencies) for each in fleet.services]


def apart(fleet: Fleet, gpus: Mapping[str, int], seed: int) -> list[Felt]:
    """Return what each service feels on GPUs of its own.

    Args:
        fleet: the services.
        gpus: the GPUs of each service.
        seed: the random numbers; those of `feel` for the same load.
    """
    placements, first = [], 0
    for each in fleet.services:
        bounds_h = [*(begin_h for begin_h, _ in each.rates), fleet.hours]
        for gpu in range(first, first + gpus[each.name]):
            for begin_h, end_h in itertools.pairwise(bounds_h):
                rate = each.rate(begin_h) / gpus[each.name]
                placements.append(
                    Placement(gpu, each.name, 0, "hp", "exclusive", begin_h, end_h, rate, 0.0, each.memory_gb)
                )
        first += gpus[each.name]
    return feel(fleet, placements, seed)


def _cases(placements: Sequence[Placement]) -> dict[_Case, float]:
    """Return the hours of each different load of a GPU, over all GPUs."""
    by_gpu: dict[int, list[Placement]] = {}
    for each in placements:
        by_gpu.setdefault(each.gpu, []).append(each)
    found: dict[_Case, float] = {}
    for mine in by_gpu.values():
        bounds_h = sorted({at_h for each in mine for at_h in (each.from_h, each.to_h)})
        for begin_h, end_h in itertools.pairwise(bounds_h):
            here = [each for each in mine if each.from_h <= begin_h and each.to_h >= end_h]
            loads = tuple(sorted((each.workload, round(each.rate, 9)) for each in here if each.rate > 0))
            if loads:
                case = loads, any(each.role == "be" for each in here)
                found[case] = found.get(case, 0.0) + end_h - begin_h
    return found


def _simulated(fleet: Fleet, cases: Mapping[_Case, float], seed: int) -> dict[_Case, dict[str, np.ndarray]]:
    """Return the latencies of each service in each case, in seconds."""
    services = {each.name: each for each in fleet.services}
    most = min(max(_REQUESTS // max(1, len(services)), _LEAST), _MOST)
    totals: dict[str, float] = {}
    hours_of: dict[tuple[tuple[str, float], ...], float] = {}
    for (loads, _), hours in cases.items():
        hours_of[loads] = hours_of.get(loads, 0.0) + hours
        for name, rate in loads:
            totals[name] = totals.get(name, 0.0) + rate * hours
    found = {}
    for loads, has_be in cases:
        part = max(hours_of[loads] / totals[name] for name, _ in loads)
        seconds = max(part * most, max(_LEAST_OF_CASE / rate for _, rate in loads))
        late_s = fleet.switch_s if has_be else 0.0
        found[loads, has_be] = _latencies([(services[name], rate) for name, rate in loads], seconds, late_s, seed)
    return found


def _latencies(
    loads: Sequence[tuple[Service, float]], seconds: float, late_s: float, seed: int
) -> dict[str, np.ndarray]:
    """Simulate one GPU; return the latencies of each service in seconds."""
    arrivals = []
    for service, rate in loads:
        random = np.random.default_rng([seed, zlib.crc32(service.name.encode())])
        gaps = random.exponential(1.0, max(1, round(rate * seconds))) / rate
        arrivals.append(np.cumsum(gaps) * _NS)
    sent = arrivals
    if late_s:
        begun = _served(loads, arrivals)
        sent = [
            np.maximum.accumulate(np.where(starts <= each, each + late_s * _NS, each))
            for each, (starts, _) in zip(arrivals, begun, strict=True)
        ]
    return {
        service.name: (ends - each) / _NS
        for (service, _), each, (_, ends) in zip(loads, arrivals, _served(loads, sent), strict=True)
    }


def _served(
    loads: Sequence[tuple[Service, float]], arrivals: Sequence[np.ndarray]
) -> list[tuple[np.ndarray, np.ndarray]]:
    queues = [
        Queue(each.tolist(), [0.0, service.service_s * _NS]) for (service, _), each in zip(loads, arrivals, strict=True)
    ]
    return [(each.starts, each.ends) for each in serve(queues, "fifo")]


def _felt(
    service: Service,
    placements: Sequence[Placement],
    cases: Mapping[_Case, float],
    latencies: Mapping[_Case, Mapping[str, np.ndarray]],
) -> Felt:
    parts = [
        (latencies[case][service.name], rate * hours)
        for case, hours in cases.items()
        for name, rate in case[0]
        if name == service.name
    ]
    gpus = _most_at_once([each for each in placements if each.workload == service.name])
    if not parts:
        return Felt(service.name, gpus, None, None)
    values = np.concatenate([each for each, _ in parts])
    weights = np.concatenate([np.full(len(each), weight / len(each)) for each, weight in parts])
    order = np.argsort(values, kind="stable")
    values, reached = values[order], np.cumsum(weights[order])
    p99 = float(values[np.searchsorted(reached, 0.99 * reached[-1])])
    missed = float(weights[order][values > service.objective_s].sum() / reached[-1])
    return Felt(service.name, gpus, p99 * 1e3, missed)


def _most_at_once(placements: Sequence[Placement]) -> int:
    times = sorted({each.from_h for each in placements})
    return max((len({p.gpu for p in placements if p.from_h <= at_h < p.to_h}) for at_h in times), default=0)
