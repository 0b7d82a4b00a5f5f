"""How long a real kubelet is without the device plugin: `python -m measurements.cluster.device_plugin_on_kubelet`.

From a checkout and as root: it starts a cluster of its own with a node, as `make cluster` does, and asks the kubelet
itself, by its PodResources interface, which slots it could give to pods. Two questions:

    registered   from the moment a kubelet that was killed makes its socket again until it has all slots again
    updated      from the moment the old plugin of a rolling update is told to end (or is killed) until the kubelet has
                 all slots for good; 0 where it never missed one

The Node object says the same up to `nodeStatusUpdateFrequency` later, which is recorded beside it.
"""

import argparse
import contextlib
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from measurements.cluster.webhook_load import conditions
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted, say
from orion.node_agent.kubelet import api_pb2, api_pb2_grpc
from testbed import binaries
from testbed.cluster import Cluster
from testbed.node import Node
from testbed.orion import RESOURCES, Orion

REGISTERED_S, UPDATED_S = 1.0, 2.0
""" What is asked for. """
CALM_S = 6.0
""" For so long nothing must change before a turn counts as over: plugins look at each other five times a second. """
PATIENCE_S = 60.0
POLL_S = 0.01


class Watch:
    """Notes in a thread of its own when the kubelet, and when the Node object, has how many slots."""

    def __init__(self, node: Node, orion: Orion) -> None:
        self._node, self._orion = node, orion
        self._kubelet: list[tuple[float, int]] = []
        self._object: list[tuple[float, int]] = []
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, args=each)
            for each in ((self._kubelet, self._ask_kubelet), (self._object, self._ask_object))
        ]

    def __enter__(self) -> "Watch":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def settled(self, total: int) -> None:
        """Return when both have had all slots for a while from now on.

        Raises:
            TimeoutError: they had not.
        """
        began = time.monotonic()
        deadline = began + PATIENCE_S
        while not all(self._calm(changes, total, began) for changes in (self._kubelet, self._object)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not {total} slots within {PATIENCE_S:.0f} s: {self._kubelet}, {self._object}")
            time.sleep(POLL_S)

    def back(self, since: float) -> dict[str, float]:
        """Return how many seconds after a moment each had all slots for good; 0: it never had fewer."""
        return {
            "kubelet_s": round(max(0.0, self._kubelet[-1][0] - since), 4),
            "node_object_s": round(max(0.0, self._object[-1][0] - since), 4),
        }

    def _calm(self, changes: list[tuple[float, int]], total: int, began: float) -> bool:
        return bool(changes) and changes[-1][1] == total and time.monotonic() > max(began, changes[-1][0]) + CALM_S

    def _follow(self, changes: list[tuple[float, int]], ask: Callable[[], int]) -> None:
        while not self._ended.wait(POLL_S):
            count = ask()
            if not changes or changes[-1][1] != count:
                changes.append((time.monotonic(), count))

    def _ask_kubelet(self) -> int:
        """Return how many slots the kubelet would give; 0 while it is away."""
        socket = self._node.folder / "lib/kubelet/pod-resources/kubelet.sock"
        options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:
            stub = api_pb2_grpc.PodResourcesListerStub(channel)  # type: ignore[no-untyped-call]
            try:
                answer = stub.GetAllocatableResources(api_pb2.AllocatableResourcesRequest(), timeout=2)
            except grpc.RpcError:
                return 0
        return sum(len(each.device_ids) for each in answer.devices if each.resource_name in RESOURCES)

    def _ask_object(self) -> int:
        return sum(self._orion.allocatable(self._node).values())


def registered(node: Node, watch: Watch, total: int) -> dict[str, float]:
    """Kill the kubelet, let it begin again, and return how long the slots took from its socket on."""
    path = node.folder / "lib/kubelet/device-plugins/kubelet.sock"
    before = path.stat().st_ino, path.stat().st_mtime_ns
    node.restart("kubelet")
    while (appeared := _appeared(path, before)) is None:
        time.sleep(0.001)
    watch.settled(total)
    return watch.back(appeared)


def _appeared(path: Path, before: tuple[int, int]) -> float | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return time.monotonic() if (found.st_ino, found.st_mtime_ns) != before else None


def updated(node: Node, orion: Orion, watch: Watch, total: int, patience: float, names: list[str]) -> dict[str, float]:
    """Start a new plugin, end the old one when that has registered, and return how long slots were missing then."""
    old, new = names
    before = _registrations(orion, f"{node.name}-{new}")
    orion.begin_plugin(node, new)
    while _registrations(orion, f"{node.name}-{new}") < before + len(RESOURCES):
        time.sleep(POLL_S)
    watch.settled(total)
    began = time.monotonic()
    orion.end(node, old, patience)
    names.reverse()
    watch.settled(total)
    return watch.back(began)


def _registrations(orion: Orion, plugin: str) -> int:
    with contextlib.suppress(FileNotFoundError):
        return orion.log(plugin).count("registered with the kubelet")
    return 0


def measure(turns: int, seed: int) -> dict[str, Any]:
    """Return the raw data."""
    chance = random.Random(seed)
    raw = raw_data.header("measurements.cluster.device_plugin_on_kubelet") | conditions()
    raw |= {"seed": seed, "load_before": os.getloadavg()[0]}
    with (
        tempfile.TemporaryDirectory(prefix="orion-cluster-") as folder,
        Cluster(Path(folder) / "cluster", binaries.find_all(), ["node-1"]) as cluster,
    ):
        orion, node = Orion(cluster), cluster.nodes["node-1"]
        try:
            orion.start()
            total = sum(orion.allocatable(node).values())
            raw |= {"slots": total, "registered": [], "updated_reported": [], "updated_killed": []}
            names = ["plugin", "plugin-2"]
            with Watch(node, orion) as watch:
                watch.settled(total)
                for turn in range(turns):
                    say(f"turn {turn + 1} of {turns}")
                    time.sleep(chance.uniform(0, 2))  # the node's status is written every 2 s
                    raw["registered"].append(registered(node, watch, total))
                    raw["updated_reported"].append(updated(node, orion, watch, total, 20, names))
                    raw["updated_killed"].append(updated(node, orion, watch, total, 0, names))
        finally:
            orion.stop()
    return raw | {"load_after": os.getloadavg()[0]}


def table(raw: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = ["| | median | most | Node object, median | most | of | asked for |", "|---|---|---|---|---|---|---|"]
    for key, name, limit in (
        ("registered", "all slots after the kubelet's socket appeared", REGISTERED_S),
        ("updated_reported", "all slots after the old plugin was reported to end", UPDATED_S),
        ("updated_killed", "all slots after the old plugin was killed", UPDATED_S),
    ):
        figures = []
        for party in ("kubelet_s", "node_object_s"):
            values = [turn[party] for turn in raw[key]]
            figures += [statistics.median(values), max(values)]
        shown = " | ".join(f"{value:.2f} s" for value in figures)
        lines.append(f"| {name} | {shown} | {len(raw[key])} | <= {limit:g} s |")
    return "\n".join(lines)


def main() -> int:
    """Measure, write the raw data, print the table."""
    parser = OneSentenceParser(
        prog="python -m measurements.cluster.device_plugin_on_kubelet", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--turns", type=counted, default=10)
    parser.add_argument("--seed", type=counted, default=1)
    parser.add_argument("--output", type=Path, default=Path("device_plugin_on_kubelet.json.gz"))
    arguments: argparse.Namespace = parser.parse_args()
    raw = measure(arguments.turns, arguments.seed)
    raw_data.write(arguments.output, raw)
    print(table(raw))
    return 0


if __name__ == "__main__":
    sys.exit(main())
