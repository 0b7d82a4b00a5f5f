"""Measures how long a kubelet lacks slots after a restart: `python -m measurements.cluster.device_plugin_on_kubelet`.

The program needs a checkout and root. It starts its own cluster with one node, as `make cluster` does. It asks the
kubelet's PodResources interface which slots are allocatable. It measures two times:

    registered   begins when a killed kubelet has created its socket again; ends when the kubelet has all slots again
    updated      begins when the old plugin of a rolling update gets SIGTERM or is killed; ends when the kubelet has all
                 slots permanently; 0 if the kubelet never lacked a slot

The kubelet writes the Node object up to `nodeStatusUpdateFrequency` later. The program records that time, too.
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
""" Targets. """
CALM_S = 6.0
""" A turn ends after this time without a change. Plugins check their sockets every 0.2 s, so they act much sooner. """
PATIENCE_S = 60.0
""" A turn fails if the slots are not back after this time. """
POLL_S = 0.01


class Watch:
    """Records in two threads how many slots the kubelet and the Node object have, with the time of each change."""

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
        """Return when the kubelet and the Node object have had all slots for CALM_S since this call.

        Raises:
            TimeoutError: not all slots were back within PATIENCE_S after the call.
        """
        began = time.monotonic()
        deadline = began + PATIENCE_S
        while not all(self._calm(changes, total, began) for changes in (self._kubelet, self._object)):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"not {total} slots within {PATIENCE_S:.0f} s: kubelet {self._kubelet}, Node object {self._object}"
                )
            time.sleep(POLL_S)

    def back(self, since: float) -> dict[str, float]:
        """Return the seconds from `since` until kubelet and Node object had all slots permanently; 0: no loss."""
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
        """Return the kubelet's number of allocatable slots; 0 while the kubelet is down."""
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
    """Kill and restart the kubelet; return the seconds from its new socket until all slots are back."""
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
    """Replace the plugin as a rolling update does; return the seconds from the signal until all slots are back.

    Args:
        node: Has the old plugin.
        orion: Starts and ends the plugins.
        watch: Observes the slots.
        total: Number of slots.
        patience: Seconds between SIGTERM and SIGKILL; 0 kills the old plugin at once.
        names: The name of the running plugin, then that of the new plugin. The function swaps them for the next call.
    """
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
    """Measure `turns` times each; return the raw data."""
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
            raw |= {"slots": total, "registered": [], "updated_sigterm": [], "updated_killed": []}
            names = ["plugin", "plugin-2"]
            with Watch(node, orion) as watch:
                watch.settled(total)
                for turn in range(turns):
                    say(f"turn {turn + 1} of {turns}")
                    # The kubelet writes the Node's status every 2 s: begin at a random time between two writes.
                    time.sleep(chance.uniform(0, 2))
                    raw["registered"].append(registered(node, watch, total))
                    raw["updated_sigterm"].append(updated(node, orion, watch, total, 20, names))
                    raw["updated_killed"].append(updated(node, orion, watch, total, 0, names))
        finally:
            orion.stop()
    return raw | {"load_after": os.getloadavg()[0]}


def table(raw: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = ["| | median | max | Node object, median | max | samples | target |", "|---|---|---|---|---|---|---|"]
    for key, name, limit in (
        ("registered", "all slots after the kubelet's socket appeared", REGISTERED_S),
        ("updated_sigterm", "all slots after the old plugin got SIGTERM", UPDATED_S),
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
