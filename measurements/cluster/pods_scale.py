"""Measures how fast a node starts pods with slots, and how fast a changed grant takes effect.

It runs on a node of a cluster with Orion, where it can reach the agent's socket. The node needs as many be slots as
pods: `slots: {be: 20}` in the node configuration gives 40 slots on two GPUs. The commands with `make cluster`:

    BENCH='python -m measurements.cluster.pods_scale'
    python -m testbed on node-1 -- .venv/bin/$BENCH --kubeconfig FILE --node node-1

A turn creates pods of one kind, all at once. A turn's time is from the first request until a watch shows the last pod
Running. Turns alternate between three kinds of pods, because the machine's speed changes over time:

    plain    a shell that sleeps, without a GPU
    slots    the same shell with a be slot: this adds admission, allocation, mounts, PreStartContainer
    joined   the example's program with a be slot; it joins its slot and opens a context of the simulated GPU
"""

import argparse
import asyncio
import importlib.metadata
import os
import random
import statistics
import sys
import time
import uuid
from collections.abc import Set
from pathlib import Path
from typing import Any

from measurements.cluster.webhook_in_cluster import Cluster
from measurements.cluster.webhook_load import conditions
from orion.api_server.credentials import find_access
from orion.api_server.requests import ApiServer
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted, say
from orion.bench.paired_turns import over, spread
from orion.crds.model import API_VERSION
from orion.node_agent.api.client import AgentClient

SHELL, EXAMPLE = "localhost/orion/shell:1", "localhost/orion-example:dev"
SLOT = "orion.gpu/be"
GONE = "Gone"
KINDS = ("plain", "slots", "joined")
RATIO_MAX = 1.33
""" Maximum ratio of the time of pods with slots to that of pods without. """
GRANT_MAX_S = 1.0
SILENCE_S = 300.0
""" After this time without data, a watch counts as dead. """
GAP_S = (0.2, 1.2)
""" Pauses between changes of a grant are random in this range, so that no timer stays in step with the changes. """
GIB = 1 << 30


def pod(name: str, kind: str) -> dict[str, Any]:
    """Return one pod of a kind."""
    container: dict[str, Any] = {"name": "main", "image": SHELL, "command": ["sleep", "100000"]}
    metadata: dict[str, Any] = {"name": name, "labels": {"app": name}}
    if kind == "joined":
        container = {"name": "main", "image": EXAMPLE, "args": ["serve", "--rate", "0.01", "--kernel-us", "100"]}
    if kind != "plain":
        container["resources"] = {"limits": {SLOT: "1"}}
        metadata["annotations"] = {"orion/priority": "be"}
    spec = {"containers": [container | {"imagePullPolicy": "Never"}], "terminationGracePeriodSeconds": 1}
    return {"metadata": metadata, "spec": spec}


class Bench:
    """Starts pods on one node, in a namespace of its own."""

    def __init__(self, cluster: Cluster, server: ApiServer, node: str) -> None:
        self._cluster, self._server, self._node = cluster, server, node
        self._name = f"orion-bench-{uuid.uuid4().hex[:8]}"
        self._pods = f"/api/v1/namespaces/{self._name}/pods"

    async def begin(self) -> None:
        """Make the namespace; return when pods can be created in it."""
        await self._cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": self._name}})
        path = f"/api/v1/namespaces/{self._name}/serviceaccounts"
        while not (await self._server.get(path))["items"]:
            await asyncio.sleep(0.1)

    async def end(self) -> None:
        """Delete the pods and the namespace."""
        await self._cluster.ask("DELETE", f"{self._pods}?gracePeriodSeconds=1")
        await self._cluster.ask("DELETE", f"/api/v1/namespaces/{self._name}")

    async def about(self) -> dict[str, Any]:
        """Return versions, and the number of allocatable slots."""
        node = await self._server.get(f"/api/v1/nodes/{self._node}")
        info = node["status"]["nodeInfo"]
        names = ("kubeletVersion", "containerRuntimeVersion", "kernelVersion", "osImage")
        ours = {"orion": importlib.metadata.version("orion-gpu")}
        return ours | {"slots": int(node["status"]["allocatable"].get(SLOT, 0)), **{name: info[name] for name in names}}

    async def start(self, name: str, kind: str) -> None:
        """Create a pod; return when it runs."""
        running = asyncio.create_task(self._times({name}, "Running"))
        await self._create(pod(name, kind))
        await running

    async def delete(self, name: str) -> None:
        """Delete a pod; return when it is gone."""
        await self._cluster.ask("DELETE", f"{self._pods}/{name}?gracePeriodSeconds=1")
        await self._times({name}, GONE)

    async def turn(self, kind: str, count: int) -> list[float]:
        """Create and delete pods; return when each was Running, in seconds since the first request."""
        names = {f"{kind}-{number}" for number in range(count)}
        running = asyncio.create_task(self._times(names, "Running"))
        await asyncio.sleep(0.5)  # until the watch is established
        began = time.monotonic()
        await asyncio.gather(*(self._create(pod(name, kind)) for name in names))
        times = sorted(at - began for at in await running)
        await self._cluster.ask("DELETE", f"{self._pods}?gracePeriodSeconds=1")
        await self._times(names, GONE)
        return times

    async def grants(self, agent: AgentClient, count: int) -> list[float]:
        """Change the memory limit of a running pod's share repeatedly.

        Returns:
            Seconds from each change's request until the agent has written the new limit into the slot's page.
        """
        shares = f"/apis/{API_VERSION}/namespaces/{self._name}/gpushares"
        spec = {"priority": "be", "selector": {"matchLabels": {"app": "granted"}}, "memory": {"limit": "1Gi"}}
        await self._cluster.ask("POST", shares, {**_kind("GPUShare"), "metadata": {"name": "granted"}, "spec": spec})
        await self._create(pod("granted", "joined"))
        await asyncio.to_thread(_wait_for_limit, agent, GIB, clients=True)
        chance, seconds = random.Random(1), []
        for number in range(count):
            await asyncio.sleep(chance.uniform(*GAP_S))
            limit = GIB + (number + 1) * (1 << 20)
            began = time.monotonic()
            patch = asyncio.create_task(
                self._server.patch(f"{shares}/granted", {"spec": {"memory": {"limit": str(limit)}}})
            )
            seconds.append(await asyncio.to_thread(_wait_for_limit, agent, limit) - began)
            await patch
        return seconds

    async def _create(self, body: dict[str, Any]) -> None:
        await self._cluster.ask("POST", self._pods, body)

    async def _times(self, names: Set[str], wanted: str) -> list[float]:
        """Wait until all pods were seen in phase `wanted`; return the monotonic time at which each pod first was."""
        times: dict[str, float] = {}
        while True:
            found = await self._server.get(self._pods)
            phases = {each["metadata"]["name"]: each["status"].get("phase") for each in found["items"]}
            now = time.monotonic()
            times = {name: now for name in names if phases.get(name, GONE) == wanted} | times
            if names == times.keys():
                return list(times.values())
            version = found["metadata"]["resourceVersion"]
            async for event in self._server.events(self._pods, SILENCE_S, resourceVersion=version):
                if event["type"] == "ERROR":
                    break
                phase = GONE if event["type"] == "DELETED" else event["object"]["status"].get("phase")
                name = event["object"]["metadata"]["name"]
                if phase == wanted and name in names:
                    times.setdefault(name, time.monotonic())
                if names == times.keys():
                    return list(times.values())


def _kind(name: str) -> dict[str, str]:
    return {"apiVersion": API_VERSION, "kind": name}


def _wait_for_limit(agent: AgentClient, limit: int, clients: bool = False) -> float:
    """Wait until a slot has this memory limit and, if `clients`, a client; return the time."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        slots = [slot for gpu in agent.snapshot().gpus for slot in gpu.slots if slot.memory_limit_bytes == limit]
        now = time.monotonic()
        if slots and (slots[0].clients or not clients):
            return now
        time.sleep(0.002)
    raise SystemExit(f"no slot had the limit of {limit} bytes within a minute")


async def measure(options: argparse.Namespace, raw: dict[str, Any]) -> None:
    """Run all turns and changes; put the results into `raw`."""
    access = find_access(options.kubeconfig)
    cluster, server = Cluster(access), ApiServer(access, "orion-bench", concurrency=options.pods, attempt_s=60)
    bench = Bench(cluster, server, options.node)
    try:
        raw["about"] = await bench.about()
        if raw["about"]["slots"] < options.pods:
            raise SystemExit(
                f"{options.node} has {raw['about']['slots']} {SLOT}; configure {options.pods}, one for each pod"
            )
        await bench.begin()
        try:
            raw["rounds"] = []
            for number in range(options.rounds):
                turns: dict[str, Any] = {}
                for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
                    load = os.getloadavg()[0]
                    times = await bench.turn(kind, options.pods)
                    turns[kind] = {"load_before": load, "running_s": raw_data.rounded(times)}
                    say(f"round {number + 1}: {options.pods} pods, {kind}: all Running after {times[-1]:.1f} s")
                raw["rounds"].append(turns)
            with AgentClient(options.root) as agent:
                raw["grant_s"] = raw_data.rounded(await bench.grants(agent, options.grants))
        finally:
            await bench.end()
    finally:
        await cluster.close()
        await server.close()


def report(raw: dict[str, Any]) -> None:
    """Print a summary of the raw data."""
    turns = [{kind: [turn["running_s"][-1]] for kind, turn in each.items()} for each in raw["rounds"]]
    for kind in KINDS:
        seconds = spread([turn[kind][0] for turn in turns])
        say(f"{kind:8} {seconds.median:6.2f} s ({seconds.low:.2f} to {seconds.high:.2f})")
    for kind in KINDS[1:]:
        ratio = over(turns, kind, "plain", lambda mine, plain: mine / plain)
        say(f"{kind} / plain {ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}); target {RATIO_MAX}")
    grants = sorted(raw["grant_s"])
    middle = statistics.median(grants)
    figures = f"median {1e3 * middle:.0f} ms, longest {1e3 * grants[-1]:.0f} ms"
    say(f"{len(grants)} changes of a grant: {figures}; target {GRANT_MAX_S:g} s")


def main() -> int:
    """Measure, print the figures, and write the raw data."""
    parser = OneSentenceParser(prog="pods_scale", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--kubeconfig", type=Path, required=True, help="kubeconfig of an administrator of a test cluster"
    )
    parser.add_argument("--node", required=True, help="name of the node on which this program runs")
    parser.add_argument(
        "--root", type=Path, default=Path("/run/orion"), help="the agent's folder (default: %(default)s)"
    )
    parser.add_argument("--pods", type=counted, default=40, help="pods in each turn (default: %(default)s)")
    parser.add_argument("--rounds", type=counted, default=5, help="turns of each kind (default: %(default)s)")
    parser.add_argument("--grants", type=counted, default=20, help="changes of a grant (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="file for the raw data, such as pods_scale.json")
    options = parser.parse_args()
    raw = raw_data.header("measurements.cluster.pods_scale") | conditions()
    raw["command"] = raw["command"].replace(str(options.kubeconfig), "KUBECONFIG")
    asyncio.run(measure(options, raw))
    report(raw)
    raw_data.write(options.out, raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())
