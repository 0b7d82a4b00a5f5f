"""Processes of one slot allocate and free at random, and are killed: what the slot had at most."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from orion.bench.memory.scenario import Limit
from orion.bench.memory.stage import PATIENCE, Stage, Tenant
from orion.bench.memory.table import Row

_EVERY = 0.01
_GROWTH_MIB = 64
""" What the driver may take for each process before it is charged, on a real GPU. """


def measure(stage: Stage, setting: Limit) -> dict[str, Any]:
    """Return samples of the slot's memory by the driver, and as the agent shows it.

    The agent adds to what the hook counts what the driver listed beyond that at its last look. Both change in between.
    """
    limit = round(setting.limit_gib * (1 << 30))
    environment = stage.slot("be", memory_limit_bytes=limit)
    sampler = stage.sampler()
    end = time.monotonic() + setting.seconds

    def start(seed: int) -> Tenant:
        options = {"threads": setting.threads, "most_mib": setting.most_mib, "seed": seed}
        tenant = stage.start("churner", options, environment)
        tenant.worker.command(do="churn", end=end)
        return tenant

    sampler.command(do="sample", end=end, every=_EVERY)
    tenants = [start(seed) for seed in range(setting.processes)]
    rows, killed = _watch(stage, setting, end, tenants, start)
    results: Counter[str] = Counter()
    for tenant in tenants:
        _, reply = (stage.crew.gather(tenant.worker, seconds=PATIENCE)[0] for _ in range(2))
        results.update(reply["results"])
    (sampled,) = stage.crew.gather(sampler, seconds=PATIENCE)
    return {"limit": limit, "hook": rows, "driver": sampled["rows"], "killed": killed, "results": dict(results)}


def _watch(
    stage: Stage, setting: Limit, end: float, tenants: list[Tenant], start: Callable[[int], Tenant]
) -> tuple[list[Any], int]:
    """Sample what the agent shows until the end; kill and replace one process after the other."""
    slot, rows, killed, next_kill = tenants[0].slot, [], 0, time.monotonic() + setting.kill_seconds
    while (now := time.monotonic()) < end:
        clients = next(each.clients for each in stage.gpu.snapshot().slots if each.name == slot)
        rows.append((round(now, 4), sum(each.memory_bytes for each in clients), len(clients)))
        if now >= next_kill and end - now > setting.kill_seconds:
            stage.say(f"{len(clients)} processes hold {rows[-1][1] >> 20} MiB; one is killed")
            tenants[0].worker.process.running.kill()
            stage.crew.end([tenants.pop(0).worker])
            tenants.append(start(setting.processes + killed))
            killed, next_kill = killed + 1, now + setting.kill_seconds
        time.sleep(_EVERY)
    return rows, killed


def rows(run: dict[str, Any]) -> list[Row]:
    """Return the figures."""
    limit, setting = run["limit"], run["setting"]
    hook = max(held for _, held, _ in run["hook"])
    driver = max(held for _, held, _ in run["driver"])
    slack = 0 if run["simulated"] else (_GROWTH_MIB << 20) * setting["processes"]
    over, shown_over = max(0, driver - limit), max(0, hook - limit)
    ways = sorted({name.split()[0] for name in run["results"] if name.endswith(" 0")})
    return [
        Row("processes x threads; killed", f"{setting['processes']} x {setting['threads']}; {run['killed']}"),
        Row("allocations; ways", f"{sum(run['results'].values())}; {', '.join(ways)}"),
        Row("allocations refused", f"{sum(n for name, n in run['results'].items() if name.endswith(' 2'))}"),
        Row("samples of the driver", f"{len(run['driver'])}"),
        Row("most by the driver over the limit, MiB", f"{driver / 2**20:.0f} / {limit >> 20}"),
        Row("bytes above the limit by the driver", f"{over}", slack, over),
        Row("longest time above that, s", f"{(longest := _longest(run['driver'], limit + slack)):.2f}", 1.0, longest),
        Row("most as the agent shows it, MiB", f"{hook / 2**20:.0f}"),
        Row("bytes above the limit as the agent shows it", f"{shown_over}", slack, shown_over),
    ]


def _longest(samples: list[Any], most: int) -> float:
    """Return for how long, in seconds, the samples were above a figure without a break."""
    longest, since = 0.0, None
    for at, held, _ in samples:
        since = None if held <= most else at if since is None else since
        longest = max(longest, 0.0 if since is None else at - since)
    return longest
