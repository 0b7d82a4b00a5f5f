"""hp's cache grows on a card that be trainers fill: allocations that fail or wait, and hp's requests meanwhile."""

import time
from typing import Any

from orion.bench.arrivals import poisson_arrivals
from orion.bench.memory.scenario import Growth
from orion.bench.memory.stage import LEAD, PATIENCE, Stage, Tenant
from orion.bench.memory.table import Row
from orion.bench.samples import latencies_ms, percentile

_LONG_MS = 10.0
_SAMPLE_SECONDS = 0.1
_MORE_SECONDS = 10.0
""" The trainers run for so much longer than is planned. """


def measure(stage: Stage, setting: Growth) -> dict[str, Any]:
    """Return hp's requests beside resident trainers, then requests and allocations of each round."""
    hp = stage.server(setting.hp, setting.mib_per_second * setting.seconds)
    tenants = []
    for _ in range(setting.tenants):
        tenants.append(stage.trainer(setting.gib))
        stage.ready(tenants[-1])
    pauses = (setting.rounds - 1) * setting.pause_seconds
    last = setting.resident_seconds + setting.rounds * setting.seconds + pauses + _MORE_SECONDS
    for tenant in tenants:
        tenant.worker.command(do="loop", begin=time.monotonic(), end=time.monotonic() + last)
    runs = []
    for number in range(setting.rounds + 1):
        if number > 1:
            time.sleep(setting.pause_seconds)
        runs.append(_round(stage, setting, hp, tenants, number))
    parkings = dict(stage.gpu.snapshot().parkings)
    stage.say("the trainers end")
    hp.worker.process.close_commands()
    stage.finish(tenants, {tenant.slot: 1 for tenant in tenants})
    return {"runs": runs, "parkings": parkings}


def _round(stage: Stage, setting: Growth, hp: Tenant, tenants: list[Tenant], number: int) -> dict[str, Any]:
    """Let hp serve while its cache grows, and free the cache; in round 0 it does not grow."""
    seconds = setting.seconds if number else setting.resident_seconds
    arrivals = poisson_arrivals(setting.hp.per_second, seconds, seed=number)
    every = setting.block_mib / setting.mib_per_second
    before = sum(stage.stays(tenants))
    stage.say(f"round {number}: {before} trainers are on the GPU" if number else "hp beside resident trainers")
    begin = time.monotonic() + LEAD
    grow = {"block_mib": setting.block_mib, "blocks": round(seconds / every) if number else 0, "every": every}
    hp.worker.command(do="grow", begin=begin, arrivals=arrivals, **grow)
    samples = []
    while (now := time.monotonic()) < begin + seconds:
        samples.append(_sample(stage, tenants, now - begin))
        time.sleep(_SAMPLE_SECONDS)
    (reply,) = stage.crew.gather(hp.worker, seconds=PATIENCE)
    after = sum(stage.stays(tenants))
    hp.worker.command(do="shrink")
    stage.crew.gather(hp.worker, seconds=PATIENCE)
    return {**reply, "arrivals": arrivals, "here": [before, after], "samples": samples}


def _sample(stage: Stage, tenants: list[Tenant], at: float) -> list[Any]:
    """Return the time, the MiB in use on the GPU, the MiB kept for hp, and what each trainer's memory does."""
    gpu = stage.gpu.snapshot()
    states = {slot.name: slot.parking.state for slot in gpu.slots}
    mib = gpu.memory_used_bytes >> 20, gpu.memory_reserve_bytes >> 20
    return [round(at, 3), *mib, [states[tenant.slot] for tenant in tenants]]


def rows(run: dict[str, Any]) -> list[Row]:
    """Return the figures of each round."""
    resident, *rounds = run["runs"]
    base = percentile(latencies_ms(resident["arrivals"], resident["ends"]), 99)
    found = [Row("hp p99 beside resident trainers, ms", f"{base:.2f}")]
    for number, each in enumerate(rounds, 1):
        times = [1e3 * seconds for _, seconds, _ in each["allocations"]]
        failed = sum(status != 0 for _, _, status in each["allocations"])
        long = sum(took > _LONG_MS for took in times)
        p99, hp = percentile(times, 99), percentile(latencies_ms(each["arrivals"], each["ends"]), 99)
        here = each["here"]
        found += [
            Row(f"round {number}: trainers on the GPU, before and after", f"{here[0]}, {here[1]}"),
            Row(f"round {number}: reserve at its begin, MiB", f"{each['samples'][0][2]}"),
            Row(f"round {number}: allocations that failed of {len(times)}", f"{failed}", 0, failed),
            Row(f"round {number}: allocation p50, ms", f"{percentile(times, 50):.3f}"),
            Row(f"round {number}: allocation p99, ms", f"{p99:.2f}", _LONG_MS if number > 1 else None, p99),
            Row(f"round {number}: allocations above {_LONG_MS:g} ms; longest, ms", f"{long}; {max(times):.0f}"),
            Row(f"round {number}: hp p99, ms", f"{hp:.2f}"),
            Row(f"round {number}: hp p99 over resident", f"{hp / base:.3f}", 1.05, hp / base),
        ]
    return found
