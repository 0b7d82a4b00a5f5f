"""Simulates a scenario under a plan: dispatches requests to parts, and lets each part serve them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orion.errors import NotFound
from orion.planning.serving.plans import Part, Plan
from orion.simulation.engine import batching

from . import batches, slices
from .arriving import Requests, requests
from .batches import Queue, Served
from .dispatch import weighted
from .setting import Service, Setting

SERVED, MISSED, DROPPED = 0, 1, 2
OUTCOMES = ("served", "missed", "dropped")


@dataclass(frozen=True)
class Results:
    """What became of one service's requests, in the order of arrival; times in nanoseconds, NaN: there is none.

    Attributes:
        service: the service.
        requests: its requests.
        starts: when the request's batch began, or when the engine admitted the request.
        first_tokens: when the engine gave the first token.
        ends: when the batch ended, or the engine gave the last token.
        gpus: the position of the GPU.
        batches: the number of requests in the request's batch; 0 where there was none.
        outcomes: positions in OUTCOMES.
    """

    service: Service
    requests: Requests
    starts: np.ndarray
    first_tokens: np.ndarray
    ends: np.ndarray
    gpus: np.ndarray
    batches: np.ndarray
    outcomes: np.ndarray


@dataclass(frozen=True)
class Simulated:
    """The results of a scenario.

    Attributes:
        setting: the scenario.
        plan: the plan.
        services: of each service, in the scenario's order.
        busy: of each GPU, nanoseconds in which its parts worked, each weighted with the part's share.
    """

    setting: Setting
    plan: Plan
    services: Sequence[Results]
    busy: Sequence[float]


def simulate(setting: Setting, plan: Plan) -> Simulated:
    """Simulate a scenario until the last request is served.

    Raises:
        Unreadable: a file of arrivals is wrong, or a profile lacks a batch.
        NotFound: a service has requests, and no part.
    """
    results, owners = {}, {}
    for number, service in enumerate(setting.services):
        asked = requests(service, setting.seconds, (setting.seed, number))
        weights = [each.throughput for part in plan.parts for each in part.services if each.service == service.name]
        if not weights and len(asked.arrivals):
            raise NotFound(f"{setting.source}: the plan has no part for the service {service.name}: add one")
        owners[service.name] = weighted(len(asked.arrivals), weights)
        results[service.name] = _empty(service, asked)
    busy, turns = [0.0] * len(setting.gpus), dict.fromkeys(results, 0)
    for part in plan.parts:
        mine = {}
        for each in part.services:
            mine[each.service] = np.flatnonzero(owners[each.service] == turns[each.service])
            turns[each.service] += 1
        busy[part.gpu] += _serve(setting, plan, part, results, mine) * part.share / 100
    for found in results.values():
        _judge(found)
    return Simulated(setting, plan, tuple(results.values()), busy)


def _empty(service: Service, asked: Requests) -> Results:
    count = len(asked.arrivals)
    times = [np.full(count, np.nan) for _ in range(3)]
    return Results(service, asked, *times, *(np.zeros(count, dtype=np.int64) for _ in range(3)))


def _serve(setting: Setting, plan: Plan, part: Part, results: dict[str, Results], mine: dict[str, np.ndarray]) -> float:
    """Let a part serve its requests, note the results, and return for how long the part worked."""
    for name, indexes in mine.items():
        results[name].gpus[indexes] = part.gpu
    queues = []
    for each in part.services:
        found = results[each.service]
        if found.service.engine is not None:  # it is alone on the part
            slowdown = setting.slowdown(plan, part, each.service)
            return _answer(found.service.engine.slowed(slowdown), found, mine[each.service])
        times = setting.times(plan, part, each)
        arrivals = found.requests.arrivals[mine[each.service]].tolist()
        delay = float(round(each.max_delay_ms * 1e6))
        queues.append(Queue(arrivals, times, delay, found.service.objective.latency))
    if part.order == "slices":
        served = slices.serve(queues, setting.drop, setting.slice_ns, setting.change_ns)
    else:
        served = batches.serve(queues, part.order, setting.drop)
    for each, one in zip(part.services, served, strict=True):
        _note(results[each.service], mine[each.service], one)
    return sum(one.busy for one in served)


def _note(found: Results, indexes: np.ndarray, served: Served) -> None:
    found.starts[indexes], found.ends[indexes] = served.starts, served.ends
    found.batches[indexes] = served.batches
    found.outcomes[indexes[np.isnan(served.ends)]] = DROPPED


def _answer(engine: batching.Engine, found: Results, indexes: np.ndarray) -> float:
    """Let an engine answer its requests, note the results, and return for how long it worked."""
    asked = found.requests
    answered = batching.answer(
        engine,
        batching.Requests(*(each[indexes].tolist() for each in (asked.arrivals, asked.prompts, asked.outputs))),
    )
    found.starts[indexes], found.ends[indexes] = answered.starts, answered.ends
    found.first_tokens[indexes] = answered.first_tokens
    return answered.busy


def _judge(found: Results) -> None:
    """Note which answered requests missed the objective."""
    objective, arrivals = found.service.objective, found.requests.arrivals
    is_late = found.ends - arrivals > objective.latency
    if found.service.engine is not None:
        is_late |= found.first_tokens - arrivals > objective.first_token
        is_late |= per_output_token(found) > objective.output_token
    found.outcomes[is_late] = MISSED


def per_output_token(found: Results) -> np.ndarray:
    """Return the mean time between an answer's tokens; NaN for answers of one token."""
    gaps = found.requests.outputs - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gaps > 0, (found.ends - found.first_tokens) / gaps, np.nan)
