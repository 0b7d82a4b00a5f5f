"""More trainers than fit take turns beside hp: each one's part of the stays, their work together, and hp's latency."""

import bisect
import time
from typing import Any

from orion.bench import raw_data
from orion.bench.arrivals import poisson_arrivals
from orion.bench.memory.scenario import Density
from orion.bench.memory.stage import LEAD, PATIENCE, Stage, Tenant
from orion.bench.memory.table import Row
from orion.bench.samples import completed_between, latencies_ms, percentile

_SAMPLE_SECONDS = 0.25
_PARTS = 10


def measure(stage: Stage, setting: Density) -> dict[str, Any]:
    """Return hp's requests alone, beside as many as fit, and beside all; the steps and stays of the trainers."""
    hp = stage.server(setting.hp)
    found: dict[str, Any] = {"alone": _serve(stage, setting, hp, [], setting.alone_seconds)}
    tenants = []
    for _ in range(setting.fit):
        tenants.append(stage.trainer(setting.gib))
        stage.ready(tenants[-1])
    found["resident"] = _serve(stage, setting, hp, tenants, setting.resident_seconds)
    replies = stage.crew.gather(*(each.worker for each in tenants), seconds=PATIENCE)
    found["resident"]["steps"] = [raw_data.rounded(reply["ends"]) for reply in replies]
    new = []
    for _ in range(setting.tenants - setting.fit):  # they are set up in their turns
        new.append(stage.trainer(setting.gib))
        stage.begun(new[-1])
    found["all"] = _serve(stage, setting, hp, [*tenants, *new], setting.settle_seconds + setting.seconds)
    found["parkings"] = dict(stage.gpu.snapshot().parkings)
    stage.say("the trainers end")
    hp.worker.process.close_commands()
    ended = _finished(stage, tenants, new)
    found["all"]["steps"] = [raw_data.rounded(reply["ends"]) for reply in ended]
    return found


def _finished(stage: Stage, tenants: list[Tenant], new: list[Tenant]) -> list[dict[str, Any]]:
    """Wait for the loops of all; the new ones have yet to say that they are set up."""
    owed = {tenant.slot: 1 for tenant in tenants} | {tenant.slot: 2 for tenant in new}
    return stage.finish([*tenants, *new], owed)


def _serve(stage: Stage, setting: Density, hp: Tenant, tenants: list[Tenant], seconds: float) -> dict[str, Any]:
    stage.say(f"hp beside {len(tenants)} trainers, {seconds:g} s")
    arrivals = poisson_arrivals(setting.hp.per_second, seconds, seed=0)
    begin = time.monotonic() + LEAD
    for tenant in tenants:
        tenant.worker.command(do="loop", begin=begin, end=begin + seconds)
    hp.worker.command(do="serve", begin=begin, arrivals=arrivals)
    samples, said = [], begin
    while (now := time.monotonic()) < begin + seconds:
        samples.append([round(now - begin, 3), *map(int, stage.stays(tenants))])
        if now - said > 30:
            said = now
            stage.say(f"{now - begin:.0f} s, on the GPU: {sum(samples[-1][1:])}")
        time.sleep(_SAMPLE_SECONDS)
    (reply,) = stage.crew.gather(hp.worker, seconds=PATIENCE)
    return {"seconds": seconds, "arrivals": arrivals, "ends": raw_data.rounded(reply["ends"]), "samples": samples}


def rows(run: dict[str, Any]) -> list[Row]:
    """Return the figures."""
    setting, every = run["setting"], run["all"]
    settle, end = setting["settle_seconds"], every["seconds"]
    rate = sum(completed_between(ends, settle, end) for ends in every["steps"]) / (end - settle)
    resident = run["resident"]
    base = sum(completed_between(ends, 0, resident["seconds"]) for ends in resident["steps"]) / resident["seconds"]
    samples = [sample[1:] for sample in every["samples"] if sample[0] >= settle]
    stays = [sum(column) for column in zip(*samples, strict=True)]
    fair = sum(stays) / len(stays)
    off = max(abs(each / fair - 1) for each in stays)
    found = [
        Row("trainers on the GPU, mean", f"{sum(stays) / len(samples):.2f} of {len(stays)}"),
        Row("times that one left", f"{run['parkings'].get('left', 0)}"),
        Row("parts of the stays over the mean", ", ".join(f"{each / fair:.2f}" for each in stays), 0.2, off),
        Row("steps a second, those that fit", f"{base:.1f}"),
        Row("steps a second of all over those that fit", f"{rate / base:.3f}", 0.95, rate / base, at_least=True),
    ]
    alone = latencies_ms(run["alone"]["arrivals"], run["alone"]["ends"])
    for name, part in (("those that fit", resident), ("all", every)):
        times = latencies_ms(part["arrivals"], part["ends"])
        for rank in (50, 99):
            now, before = percentile(times, rank), percentile(alone, rank)
            target = 1.02 if name == "all" and rank == 99 else None
            text = f"{now:.2f} / {before:.2f} = {now / before:.3f}"
            found.append(Row(f"hp p{rank} beside {name} over alone, ms", text, target, now / before))
    return [*found, *_while_they_move(run)]


def _while_they_move(run: dict[str, Any]) -> list[Row]:
    """Return what changes cost hp: its requests of the whole time over those that came while nobody left or returned.

    Both kinds of times alternate, with each change, so what else the machine does concerns both.
    """
    every, fit, settle = run["all"], run["setting"]["fit"], run["setting"]["settle_seconds"]
    times = [sample[0] for sample in every["samples"]]
    complete = [sum(sample[1:]) == fit for sample in every["samples"]]
    parts: list[tuple[list[float], list[float]]] = [([], []) for _ in range(_PARTS)]
    for at, latency in zip(every["arrivals"], latencies_ms(every["arrivals"], every["ends"]), strict=True):
        after = bisect.bisect_left(times, at)
        if at >= settle and 0 < after < len(times):
            still, moving = parts[int((at - settle) * _PARTS / (every["seconds"] - settle))]
            (still if complete[after - 1] and complete[after] else moving).append(latency)
    found = list[Row]()
    for rank in (50, 99):
        ratios = sorted(percentile(still + moving, rank) / percentile(still, rank) for still, moving in parts if still)
        still, moving = ([each for part in parts for each in part[kind]] for kind in (0, 1))
        now, base, change = (percentile(each, rank) for each in (still + moving, still, moving))
        name = f"hp p{rank} beside all, the whole time over the times without a change"
        found += [
            Row(f"{name}, ms", f"{now:.2f} / {base:.2f} = {now / base:.3f}", 1.02 if rank == 99 else None, now / base),
            Row("the same in ten equal parts, median (range)", _spread(ratios)),
            Row(
                f"hp p{rank}, times of changes over the others, ms", f"{change:.2f} / {base:.2f} = {change / base:.3f}"
            ),
        ]
    return found


def _spread(ratios: list[float]) -> str:
    """Return the median of sorted ratios, and their range."""
    return f"{percentile(ratios, 50):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})" if ratios else "none"
