"""An hp pod's latency beside a be pod, and how fast a changed grant arrives: with a device plugin and with claims.

Both are measured in turns on one node with one simulated GPU, by the programs that docs/results/pods.md cites. An hp
pod's latency is that of the examples' server, alone and beside the examples' training.
"""

import asyncio
import os
import statistics
from collections.abc import Mapping
from typing import Any

from measurements.cluster import pods_latency, pods_scale
from measurements.cluster.claims.figures import Figure
from measurements.cluster.claims.world import World, world
from measurements.cluster.webhook_in_cluster import Cluster
from orion.api_server.credentials import find_access
from orion.api_server.requests import ApiServer
from orion.bench import raw_data
from orion.bench.commandline import say
from orion.node_agent.api.client import AgentClient

SIZES = {"rounds": 5, "reports": 2, "grants": 20}
SMOKE = {"rounds": 1, "reports": 1, "grants": 3}
MODES = {"device-plugin": "device plugin", "dra": "claims"}


def measure(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return the raw data."""
    rounds = []
    with world(1, {"hp": 1, "be": 3}, allocation="device-plugin") as here:
        for number in range(sizes["rounds"]):
            turns: dict[str, Any] = {}
            for mode in MODES if number % 2 == 0 else [*MODES][::-1]:
                here.give_by(mode)
                turns[mode] = {"load_before": os.getloadavg()[0]} | asyncio.run(_turn(here, sizes))
                say(f"round {number + 1} of {sizes['rounds']}, {mode}: p99 x {_ratio(turns[mode]):.2f}")
            rounds.append(turns)
    return {"rounds": rounds}


def figures(raw: Mapping[str, Any]) -> list[Figure]:
    """Return the rows of the table."""
    rows = []
    for mode, title in MODES.items():
        turns = [each[mode] for each in raw["rounds"]]
        rows += [
            Figure(f"{title}: hp p99, alone", [_p99(each["alone"]) / 1e3 for each in turns], "", "ms"),
            Figure(f"{title}: hp p99, beside a be pod", [_p99(each["orion"]) / 1e3 for each in turns], "", "ms"),
            Figure(
                f"{title}: beside a be pod / alone, of the same turn",
                [round(_ratio(each), 3) for each in turns], "equal within the spread", "x",
            ),
            Figure(f"{title}: grant change to page", [s for each in turns for s in each["grant_s"]], "<= 1 s", "ms"),
        ]  # fmt: skip
    return rows


async def _turn(here: World, sizes: Mapping[str, int]) -> dict[str, Any]:
    access = find_access(here.orion.access.kubeconfig)
    cluster, server = Cluster(access), ApiServer(access, "orion-bench")
    latency, grants = pods_latency.Bench(cluster), pods_scale.Bench(cluster, server, here.node.name)
    try:
        await latency.begin()
        gpu = (await latency.create(pods_latency.server()))["gpu"]
        found: dict[str, Any] = {
            phase: await latency.phase(phase, gpu, sizes["reports"]) for phase in ("alone", "orion")
        }
        await latency.delete("serve")
        await grants.begin()
        with AgentClient(here.root) as agent:
            found["grant_s"] = raw_data.rounded(await grants.grants(agent, sizes["grants"]))
        await grants.delete("granted")
    finally:
        await latency.end()
        await grants.end()
        await cluster.close()
        await server.close()
    return found


def _p99(phase: Mapping[str, Any]) -> float:
    return statistics.median(float(report["p99_ms"]) for report in phase["hp"])


def _ratio(turn: Mapping[str, Any]) -> float:
    return _p99(turn["orion"]) / _p99(turn["alone"])
