"""How fast a node starts 40 pods with claims, beside plain pods.

    plain    a shell that sleeps, without a GPU
    claims   the same shell, which asks for a be slot as usual; another pod uses the template already
    first    the same, and the operator has to make the template first

Turns alternate. A turn's time is from the first request until a watch shows the last pod Running. Each turn has its own
namespace, so no template is left of an earlier one.
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measurements.cluster import pods_scale
from measurements.cluster.claims.figures import Figure
from measurements.cluster.claims.world import world
from measurements.cluster.webhook_in_cluster import Cluster
from orion.api_server.credentials import find_access
from orion.api_server.requests import ApiServer
from orion.bench import raw_data
from orion.bench.commandline import say

GPUS = 2
KINDS = ("plain", "claims", "first")
NODE = "node-1"
SIZES = {"pods": 40, "rounds": 7}
SMOKE = {"pods": 10, "rounds": 1}


def measure(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return the raw data."""
    # One more slot than pods, for the pod that uses the template already.
    with world(GPUS, {"hp": 1, "be": sizes["pods"] // GPUS + 1}) as here:
        return {"rounds": asyncio.run(_rounds(here.orion.access.kubeconfig, sizes))}


def figures(raw: Mapping[str, Any]) -> list[Figure]:
    """Return the rows of the table."""
    last = {kind: [turns[kind]["running_s"][-1] for turns in raw["rounds"]] for kind in KINDS}
    pods = raw["sizes"]["pods"]
    return [
        Figure(f"{pods} plain pods", last["plain"]),
        Figure(f"{pods} pods with claims", last["claims"]),
        Figure(
            "claims / plain of the same round",
            [round(claims / plain, 3) for claims, plain in zip(last["claims"], last["plain"], strict=True)],
            "<= 1.5", "x",
        ),
        Figure(f"{pods} pods with claims, the template has to be made first", last["first"]),
        Figure(
            "more than with the template, in the same round",
            [first - claims for first, claims in zip(last["first"], last["claims"], strict=True)],
            "<= 1.5 s",
        ),
    ]  # fmt: skip


async def _rounds(kubeconfig: Path, sizes: Mapping[str, int]) -> list[dict[str, Any]]:
    access = find_access(kubeconfig)
    cluster, server = Cluster(access), ApiServer(access, "orion-bench", concurrency=sizes["pods"], attempt_s=60)
    rounds = []
    try:
        for number in range(sizes["rounds"]):
            turns = {}
            for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
                turns[kind] = await _turn(pods_scale.Bench(cluster, server, NODE), kind, sizes["pods"])
                say(f"round {number + 1}, {kind}: all Running after {turns[kind]['running_s'][-1]:.1f} s")
            rounds.append(turns)
    finally:
        await cluster.close()
        await server.close()
    return rounds


async def _turn(bench: pods_scale.Bench, kind: str, count: int) -> dict[str, Any]:
    await bench.begin()
    try:
        if kind == "claims":
            await bench.start("earlier", "slots")
        load = os.getloadavg()[0]
        times = await bench.turn("plain" if kind == "plain" else "slots", count)
        return {"load_before": load, "running_s": raw_data.rounded(times)}
    finally:
        await bench.end()
