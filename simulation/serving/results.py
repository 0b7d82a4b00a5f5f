"""The log and the report of a simulated scenario."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from orion.crds.durations import Duration
from orion.planning.serving.plans import Part

from .setting import Setting
from .simulating import DROPPED, OUTCOMES, SERVED, Results, Simulated, per_output_token

SCHEMA = "orion.simulate.serving/1"
LOG_HEADER = "service,request,arrival_s,start_s,first_token_s,end_s,gpu,batch,outcome\n"
_CHUNK = 10_000


def log_lines(simulated: Simulated) -> Iterator[str]:
    """Yield the lines of the log: service by service, requests in the order of arrival; in pieces of many lines."""
    yield LOG_HEADER
    gpus = [_cell(gpu.name) for gpu in simulated.setting.gpus]
    for found in simulated.services:
        for begin in range(0, len(found.starts), _CHUNK):
            yield "".join(_lines(found, gpus, slice(begin, begin + _CHUNK)))


def _cell(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(each in name for each in ',"\r\n') else name


def _lines(found: Results, gpus: Sequence[str], which: slice) -> Iterator[str]:
    name = _cell(found.service.name)
    times = (found.requests.arrivals, found.starts, found.first_tokens, found.ends)
    columns = [(each[which] / 1e9).tolist() for each in times]
    others = (found.requests.numbers, found.gpus, found.batches, found.outcomes)
    for arrival, start, first, end, number, gpu, batch, outcome in zip(
        *columns, *(each[which].tolist() for each in others), strict=True
    ):
        begun = f"{start:.9f}" if start == start else ""
        token = f"{first:.9f}" if first == first else ""
        ended = f"{end:.9f}" if end == end else ""
        size = batch or ""
        yield f"{name},{number},{arrival:.9f},{begun},{token},{ended},{gpus[gpu]},{size},{OUTCOMES[outcome]}\n"


def report(simulated: Simulated) -> dict[str, Any]:
    """Return the report in the form `orion.simulate.serving/1`."""
    setting = simulated.setting
    ends = [float(np.nanmax(found.ends, initial=0.0)) for found in simulated.services]
    arrivals = [float(found.requests.arrivals.max(initial=0.0)) for found in simulated.services]
    span_ns = setting.seconds * 1e9 if math.isfinite(setting.seconds) else max(arrivals)
    last_ns = max(span_ns, *ends)
    return {
        "schema": SCHEMA,
        "seed": setting.seed,
        "plan": [_part(setting, part) for part in simulated.plan.parts],
        "services": [_service(found, span_ns) for found in simulated.services],
        "gpus": [
            {"gpu": gpu.name, "busy": busy / last_ns if last_ns else 0.0}
            for gpu, busy in zip(setting.gpus, simulated.busy, strict=True)
        ],
        "reason": simulated.plan.reason,
        "notes": notes(simulated),
    }


def needs(setting: Setting, part: Part) -> str | None:
    """Return what a part needs that Orion does not do on a GPU today; None if nothing."""
    names = [each.service for each in part.services]
    if part.order == "slices" or len(names) == 1 or setting.in_one_process(names):
        return None
    return f"order {part.order}: one process has to serve all services of the part"


def _part(setting: Setting, part: Part) -> dict[str, Any]:
    return {
        "gpu": setting.gpus[part.gpu].name,
        "way": part.way,
        "share": part.share,
        "order": part.order,
        "needs": needs(setting, part),
        "services": [
            {
                "name": each.service,
                "batch": each.batch,
                "maxDelay": Duration.of(round(each.max_delay_ms * 1e6)),
                "throughput": each.throughput,
            }
            for each in part.services
        ],
    }


def _service(found: Results, span_ns: float) -> dict[str, Any]:
    arrivals, count = found.requests.arrivals, len(found.starts)
    missed = int((found.outcomes != SERVED).sum())
    ended = int((found.ends <= span_ns).sum())
    ratio = missed / count if count else None
    return {
        "name": found.service.name,
        "requests": count,
        "missed": missed,
        "dropped": int((found.outcomes == DROPPED).sum()),
        "miss_ratio": ratio,
        "is_met": None if ratio is None else ratio <= 1 - found.service.objective.quantile + 1e-12,
        "throughput": ended * 1e9 / span_ns if span_ns else 0.0,
        "latency_ms": _spread(found.ends - arrivals),
        "wait_ms": _spread(found.starts - arrivals),
        "ttft_ms": _spread(found.first_tokens - arrivals),
        "tpot_ms": _spread(per_output_token(found) if found.service.engine is not None else np.zeros(0)),
    }


def _spread(times_ns: np.ndarray) -> dict[str, float | None]:
    """Return mean and quantiles in milliseconds of the times that exist."""
    times = times_ns[~np.isnan(times_ns)] / 1e6
    if not len(times):
        return dict.fromkeys(("mean", "p50", "p95", "p99", "max"))
    p50, p95, p99 = np.percentile(times, (50, 95, 99)).tolist()
    return {"mean": float(times.mean()), "p50": p50, "p95": p95, "p99": p99, "max": float(times.max())}


def notes(simulated: Simulated) -> list[str]:
    """Return sentences about objectives that nothing can hold, and about times that were not measured."""
    found = []
    for result in simulated.services:
        service, latency = result.service, result.service.latency
        if latency is None:
            continue
        best_ms, limit_ms = min(latency.ms(1, share) for share in latency.points), service.objective.latency / 1e6
        if best_ms > limit_ms:
            found.append(
                f"the service {service.name}: nothing can hold its objective of {limit_ms:g} ms, because one request "
                f"takes at least {best_ms:g} ms"
            )
        parts = [
            (part, each) for part in simulated.plan.parts for each in part.services if each.service == service.name
        ]
        measured = ", ".join(f"{share:g}" for share in sorted(latency.points))
        for share in sorted({part.share for part, _ in parts} - set(latency.points)):
            found.append(
                f"the service {service.name} was not measured with {share} % of a GPU: its times are interpolated "
                f"between those with {measured} %, and are those of the nearest one outside of them"
            )
        for share in sorted({part.share for part, _ in parts}):
            largest = min(max(latency.points[each]) for each in _around(share, latency.points))
            batch = max(each.batch for part, each in parts if part.share == share)
            if batch > largest:
                found.append(
                    f"the service {service.name} was measured up to a batch of {largest} for {share} % of a GPU: the "
                    f"times of larger ones, up to {batch}, are extrapolated"
                )
    return found


def _around(share: float, measured: Iterable[int]) -> set[int]:
    """Return the measured shares from which the time at a share comes."""
    shares = list(measured)
    above = [each for each in shares if each >= share] or [max(shares)]
    below = [each for each in shares if each <= share] or [min(shares)]
    return {min(above), max(below)}
