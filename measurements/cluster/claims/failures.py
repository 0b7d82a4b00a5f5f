"""How many of the same random pods fail with a device plugin and with claims, on two nodes with eight GPUs each.

The pods are hp or be, ask for one to four GPUs, time and memory, and run for a moment or until a wave is over. With
claims, tests/node/test_claims_come_and_go.py checks more at each moment; this counts failures alone, of both.
"""

import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from measurements.cluster.claims.figures import Figure
from measurements.cluster.claims.manifests import Manifest, as_usual, share, shell
from measurements.cluster.claims.world import PATIENCE_S, World, until, world
from orion.bench.commandline import say

SIZES = {"pods": 200, "wave": 40}
SMOKE = {"pods": 20, "wave": 10}
GPUS, SEED = 8, 18
MODES = {"device-plugin": "device plugin", "dra": "claims"}
LASTS = "lasts"
""" In the names of pods that run until they are deleted. """
FLOORS = {"hp": (None, 0.5, 0.7), "be": (None, 0.3, 0.7)}
MEMORIES = (None, "20Gi")
POLL_S = 0.2


def measure(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return the raw data."""
    raw: dict[str, Any] = {}
    nodes = ("node-1", "node-2")
    with world(GPUS, {"hp": 1, "be": 3}, allocation="device-plugin", nodes=nodes) as here:
        for mode in MODES:
            here.give_by(mode)
            with here.namespace() as namespace:
                raw[mode] = _run(here, namespace, sizes)
            say(f"{mode}: {raw[mode]}")
    return raw


def figures(raw: Mapping[str, Any]) -> list[Figure]:
    """Return the rows of the table."""
    rows = []
    for mode, title in MODES.items():
        failed, target = sum(raw[mode]["failed"].values()), "0" if mode == "dra" else ""
        rows += [
            Figure(f"{title}: failed of {raw['sizes']['pods']} random pods", [failed], target, "pods"),
            Figure(f"{title}: until all have come and gone", [raw[mode]["seconds"]]),
        ]
    return rows


def _run(here: World, namespace: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    choose, failed, began = random.Random(SEED), Counter[str](), time.monotonic()
    for role, floors in FLOORS.items():
        for floor, memory in itertools.product(floors, MEMORIES):
            spec: Manifest = {"compute": {"request": floor}} if floor else {}
            gives_back = {"oversubscribe": "park"} if role == "be" else {}
            spec |= {"memory": {"request": memory, "limit": "30Gi"} | gives_back} if memory else {}
            here.create(namespace, share(f"{role}-{floor}-{memory}".lower(), role, **spec))
    for number in range(sizes["pods"]):
        here.create(namespace, _pod(choose, number))
        if number % sizes["wave"] == sizes["wave"] - 1:
            _end_wave(here, namespace, failed)
    while _statuses(here, namespace):
        _end_wave(here, namespace, failed)
    return {"failed": dict(failed), "seconds": round(time.monotonic() - began, 1)}


def _pod(choose: random.Random, number: int) -> Manifest:
    kind, role = choose.choice((LASTS, "ends", "ends")), choose.choice(("hp", "be", "be"))
    name = f"{role}-{choose.choice(FLOORS[role])}-{choose.choice(MEMORIES)}".lower()
    pod = shell(f"{kind}-{number}", f"sleep {100000 if kind == LASTS else choose.choice((0.1, 0.5, 2))}")
    pod["spec"]["restartPolicy"] = "Never"
    return as_usual(pod, role, name, choose.choice((1, 2, 3, 4)))


def _end_wave(here: World, namespace: str, failed: Counter[str]) -> None:
    """Wait until each pod has ended, lasts or waits for others; count the failed ones, and delete all that do not wait.

    Raises:
        TimeoutError: that took too long.
    """
    end = time.monotonic() + PATIENCE_S
    while not all(itertools.starmap(_has_settled, (statuses := _statuses(here, namespace)).items())):
        if time.monotonic() > end:
            raise TimeoutError(f"pods do not settle: {statuses}")
        time.sleep(POLL_S)
    failed.update(
        f"{status.get('reason', '')}: {status.get('message', '')[:80]}"
        for status in statuses.values()
        if status["phase"] == "Failed"
    )
    gone = [name for name, status in statuses.items() if status["phase"] != "Pending"]
    for name in gone:
        here.core.delete_namespaced_pod(name, namespace)
    until(lambda: not set(gone) & _statuses(here, namespace).keys(), "they are gone", pause_s=POLL_S)


def _statuses(here: World, namespace: str) -> dict[str, dict[str, Any]]:
    """Return the statuses of all pods by name; plain JSON, since the client's models take much longer."""
    answer = here.core.list_namespaced_pod(namespace, _preload_content=False)
    return {each["metadata"]["name"]: each["status"] for each in json.loads(answer.data)["items"]}


def _has_settled(name: str, status: Mapping[str, Any]) -> bool:
    if status["phase"] == "Pending":
        reasons = [each.get("reason") for each in status.get("conditions", ()) if each["type"] == "PodScheduled"]
        return reasons == ["Unschedulable"]
    return bool(status["phase"] == "Failed" or (status["phase"] == "Running") == (LASTS in name))
