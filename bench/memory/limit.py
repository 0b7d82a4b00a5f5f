"""Processes of one slot allocate and free at random, and are killed: what the slot had at most."""

import time
from contextlib import ExitStack
from typing import Any

from orion.bench.memory.scenario import Limit
from orion.bench.memory.stage import PATIENCE, Stage, Tenant
from orion.bench.memory.table import Row

_EVERY = 0.01
_GROWTH_MIB = 64
""" What the driver may take for each process before it is charged, on a real GPU. """


def measure(stack: ExitStack, stage: Stage, setting: Limit) -> dict[str, Any]:
    """Return samples of the slot's memory by the hook and by the driver."""
    limit = round(setting.limit_gib * (1 << 30))
    environment = stage.slot("be", memory_limit_bytes=limit)
    sampler = stage.outside("sampler", {"simulated": stage.simulated})
    end = time.monotonic() + setting.seconds

    def start(seed: int) -> Tenant:
        options = {"threads": setting.threads, "most_mib": setting.most_mib, "seed": seed}
        return stage.start("churner", options, environment)

    sampler.command(do="sample", end=end, every=_EVERY)
    tenants = [start(seed) for seed in range(setting.processes)]
    for tenant in tenants:
        tenant.worker.command(do="churn", end=end)
    slot, rows, killed, next_kill = tenants[0].slot, [], 0, time.monotonic() + setting.kill_seconds
    while (now := time.monotonic()) < end:
        clients = next(each.clients for each in stage.gpu.snapshot().slots if each.name == slot)
        rows.append((round(now, 4), sum(each.memory_bytes for each in clients), len(clients)))
        if now >= next_kill and end - now > setting.kill_seconds:
            stage.say(f"{len(clients)} processes hold {rows[-1][1] >> 20} MiB; one is killed")
            tenants[0].worker.process.running.kill()
            stage.crew.end([tenants.pop(0).worker])
            tenants.append(start(setting.processes + killed))
            tenants[-1].worker.command(do="churn", end=end)
            killed, next_kill = killed + 1, now + setting.kill_seconds
        time.sleep(_EVERY)
    results: dict[str, int] = {}
    for tenant in tenants:
        _, reply = (stage.crew.gather(tenant.worker, seconds=PATIENCE)[0] for _ in range(2))
        for name, count in reply["results"].items():
            results[name] = results.get(name, 0) + count
    (sampled,) = stage.crew.gather(sampler, seconds=PATIENCE)
    return {"limit": limit, "hook": rows, "driver": sampled["rows"], "killed": killed, "results": results}


def rows(run: dict[str, Any]) -> list[Row]:
    """Return the figures."""
    limit, setting = run["limit"], run["setting"]
    hook = max(held for _, held, _ in run["hook"])
    driver = max(held for _, held, _ in run["driver"])
    slack = 0 if run["simulated"] else (_GROWTH_MIB << 20) * setting["processes"]
    over = [max(0, held - limit) for held in (hook, driver)]
    ways = sorted({name.split()[0] for name in run["results"] if name.endswith(" 0")})
    return [
        Row("processes x threads; killed", f"{setting['processes']} x {setting['threads']}; {run['killed']}"),
        Row("allocations; ways", f"{sum(run['results'].values())}; {', '.join(ways)}"),
        Row("allocations refused", f"{sum(n for name, n in run['results'].items() if name.endswith(' 2'))}"),
        Row("samples by the hook, by the driver", f"{len(run['hook'])}, {len(run['driver'])}"),
        Row("most by the hook over the limit, MiB", f"{hook / 2**20:.0f} / {limit >> 20}"),
        Row("most by the driver over the limit, MiB", f"{driver / 2**20:.0f} / {limit >> 20}"),
        Row("bytes above the limit by the hook", f"{over[0]}", 0, over[0]),
        Row("bytes above the limit by the driver", f"{over[1]}", slack, over[1]),
    ]
