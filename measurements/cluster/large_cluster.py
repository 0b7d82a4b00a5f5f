"""Measures the operator with 100,000 pods, of which 20,000 are Orion's, and the agents of 5,000 nodes.

    python -m testbed up --no-node --folder FOLDER && kubectl apply --server-side -f charts/orion/files/crds
    python -m measurements.cluster.large_cluster --cluster FOLDER --output FILE

API server, etcd and the operator, as a separate process, are real. Nodes and pods are objects without a kubelet. A pod
is 5.3 KB, a node 8.1 KB, as JSON. Each agent is a TLS connection of its own, with a token of its own that the API
server issues for a pod on the agent's node and reviews for the operator; the agents run in this process. When the
operator starts again, each agent reads its new certificate and connects again, as real ones do.

A restart is over when the operator holds the Lease, nothing waits to be reconciled, and every agent has been sent the
pods of its node. The script also measures resident memory, and writes and CPU time at rest.
"""

import argparse
import asyncio
import asyncio.sslproto
import contextlib
import json
import os
import platform
import random
import signal
import socket
import ssl
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from measurements.cluster.copied_objects import Etcd
from measurements.cluster.operator_scale import Operator
from orion.api_server.credentials import find_access
from orion.api_server.requests import METADATA_LIST, ApiError, ApiServer
from orion.crds.annotations import PRIORITY_LABEL
from orion.crds.model import API_VERSION
from orion.node_pods import AUDIENCE, LENGTH_BYTES, frame
from orion.node_pods.node_pods_pb2 import Answer, Call

OURS_OF_A_NODE, OTHERS_OF_A_NODE = 4, 15
SHARES, NAMESPACES, OTHER_NAMESPACES = 2_000, 20, 80
AGENTS = "agents"
_KINDS = f"/apis/{API_VERSION}"
_AGAIN_S = (1.0, 8.0)
""" After which time an agent without a connection tries again, at random. """


class LargeCluster:
    """Makes the objects: of each form one by the API server, and its copies in etcd."""

    def __init__(self, api: ApiServer, etcd: Etcd, nodes: int) -> None:
        self._api, self._etcd, self.nodes = api, etcd, nodes
        self.agents: list[str] = []
        """ The uid of each node's agent pod. """

    async def make(self) -> None:
        """Make all objects."""
        for name in [AGENTS, *map(_space, range(NAMESPACES)), *map(_other, range(OTHER_NAMESPACES))]:
            await self._new("/api/v1/namespaces", {"metadata": {"name": name}})
        await self._new(f"/api/v1/namespaces/{AGENTS}/serviceaccounts", {"metadata": {"name": "agent"}})
        await asyncio.sleep(5)  # until the service accounts exist
        await self._make_nodes()
        await self._make_shares()
        await self._make_pods()
        await self._make_devices()

    async def _make_nodes(self) -> None:
        uid = await self._new("/api/v1/nodes", {"metadata": {"name": _node(0), "labels": {"zone": "a"}}})
        images = [{"names": [f"registry.example/{n:02}@sha256:{'0' * 64}"], "sizeBytes": n} for n in range(50)]
        kinds = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
        conditions = [{"type": kind, "status": str(kind == "Ready")} for kind in kinds]
        status = {"images": images, "conditions": conditions, "allocatable": {"orion.gpu/be": "8", "cpu": "64"}}
        await self._api.patch(f"/api/v1/nodes/{_node(0)}/status", {"status": status})
        while "taints" in (await self._api.get(f"/api/v1/nodes/{_node(0)}"))["spec"]:  # until it counts as ready
            await asyncio.sleep(0.2)
        await self._etcd.copy(f"minions/{_node(0)}", uid, ({_node(0): _node(n)} for n in range(1, self.nodes)))

    async def _make_shares(self) -> None:
        spec = {"priority": "be", "selector": {"matchLabels": {"app": _share(0)}}, "memory": {"limit": "4Gi"}}
        body = {"apiVersion": API_VERSION, "kind": "GPUShare", "metadata": {"name": _share(0)}, "spec": spec}
        uid = await self._new(f"{_KINDS}/namespaces/{_space(0)}/gpushares", body)
        names = ({_share(0): _share(n), _space(0): _space(n)} for n in range(1, SHARES))
        await self._etcd.copy(f"orion.gpu/gpushares/{_space(0)}/{_share(0)}", uid, names)

    async def _make_pods(self) -> None:
        mark = {"labels": {"app": _share(0), PRIORITY_LABEL: "be"}, "annotations": {"orion/priority": "be"}}
        uid = await self._new_pod(_space(0), {"name": _pod(0)} | mark, {"orion.gpu/be": "1"})
        ours = (
            {_pod(0): _pod(n), _space(0): _space(n), _share(0): _share(n), _node(0): _node(n // OURS_OF_A_NODE)}
            for n in range(1, self.nodes * OURS_OF_A_NODE)
        )
        await self._etcd.copy(f"pods/{_space(0)}/{_pod(0)}", uid, ours)
        for make, spaces, first in ((_space, NAMESPACES, 0), (_other, OTHER_NAMESPACES, 3)):
            # A fifth of the others is in namespaces with shares.
            uid = await self._new_pod(make(0), {"name": _web(first, 0), "labels": {"app": "web"}}, {"cpu": "1"})
            row = range(first, 3 if make is _space else OTHERS_OF_A_NODE)
            numbers = [(kind, n) for kind in row for n in range(self.nodes)][1:]
            names = (
                {_web(first, 0): _web(kind, n), make(0): make((n + kind) % spaces), _node(0): _node(n)}
                for kind, n in numbers
            )
            await self._etcd.copy(f"pods/{make(0)}/{_web(first, 0)}", uid, names)
        uid = await self._new_pod(AGENTS, {"name": "agent-0000"}, {"cpu": "1"}, serviceAccountName="agent")
        agents = ({"agent-0000": f"agent-{n:04}", _node(0): _node(n)} for n in range(1, self.nodes))
        await self._etcd.copy(f"pods/{AGENTS}/agent-0000", uid, agents)

    async def _make_devices(self) -> None:
        rows: list[dict[str, Any]] = []
        clients: list[dict[str, Any]] = []
        for n in range(OURS_OF_A_NODE):
            row: dict[str, Any] = {"priority": "be", "pod": {"namespace": _space(n), "name": _pod(n)}}
            rows.append({"name": f"be-{n}", **row, "share": _share(n), "generation": 1, "clients": 1})
            figures = {"memory": "3Gi", "busyRatio": 0.4, "gatedRatio": 0.5, "state": "running"}
            clients.append({"slot": f"be-{n}", **row, "processId": 1_000 + n, "command": "python", **figures})
        status: dict[str, Any] = {
            "node": _node(0),
            "uuid": _gpu(0),
            "model": "NVIDIA H200",
            "mode": "timeslice",
            "health": "Healthy",
        }
        status |= {"heldSlots": rows, "clients": clients, "clientCount": len(clients)}
        name = _gpu(0).lower()
        body = {"apiVersion": API_VERSION, "kind": "GPUDevice", "metadata": {"name": name}, "spec": {}}
        uid = await self._new(f"{_KINDS}/gpudevices", body)
        await self._api.patch(f"{_KINDS}/gpudevices/{name}/status", {"status": status})
        await self._etcd.copy(f"orion.gpu/gpudevices/{name}", uid, map(_names_of_device, range(1, self.nodes)))

    async def until_listed(self) -> None:
        """Wait until the API server has read all copies."""
        wanted = self.nodes * (OURS_OF_A_NODE + OTHERS_OF_A_NODE + 1)
        found = 0
        while found < wanted:
            await asyncio.sleep(2)
            with contextlib.suppress(ApiError):  # its cache is behind
                page = await self._api.get("/api/v1/pods", METADATA_LIST, limit="1")
                found = 1 + page["metadata"].get("remainingItemCount", 0)
        assert found == wanted, found

    async def token(self, number: int) -> str:
        """Return a token of a node's agent, as the kubelet mounts it."""
        pods, name = f"/api/v1/namespaces/{AGENTS}/pods", f"agent-{number:04}"
        uid = (await self._api.get(f"{pods}/{name}"))["metadata"]["uid"]
        bound = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}
        spec = {"audiences": [AUDIENCE], "boundObjectRef": bound, "expirationSeconds": 6 * 3600}
        path = f"/api/v1/namespaces/{AGENTS}/serviceaccounts/agent/token"
        return str((await self._api.post(path, {"spec": spec}))["status"]["token"])

    async def _new(self, path: str, body: dict[str, Any]) -> str:
        return str((await self._api.post(path, body))["metadata"]["uid"])

    async def _new_pod(self, space: str, meta: dict[str, Any], limits: dict[str, str], **more: str) -> str:
        env = [{"name": f"SETTING_{n:02}", "value": "a value of some length"} for n in range(16)]
        container = {"name": "main", "image": "registry.example/training:1", "env": env}
        spec = {"containers": [container | {"resources": {"limits": limits}}], "nodeName": _node(0), **more}
        uid = await self._new(f"/api/v1/namespaces/{space}/pods", {"metadata": meta, "spec": spec})
        kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        status = {"phase": "Running", "conditions": [{"type": kind, "status": "True"} for kind in kinds]}
        await self._api.patch(f"/api/v1/namespaces/{space}/pods/{meta['name']}/status", {"status": status})
        return uid


class Agents:
    """The calls of all agents.

    Args:
        api: the API server, which has the operator's certificate.
        port: that of the operator, on this machine.
        tokens: one for each agent.
        least: the least pods that each agent must be sent.
    """

    def __init__(self, api: ApiServer, port: int, tokens: list[str], least: int = OURS_OF_A_NODE) -> None:
        self._api, self._port, self._tokens, self._least = api, port, tokens, least
        self._context = ssl.create_default_context()
        self._known = ""
        self.notified: dict[int, float] = {}
        """ When each agent was last sent its pods. """
        self.ended = 0

    @contextlib.asynccontextmanager
    async def connected(self, nodes: int) -> AsyncIterator[None]:
        """Let the agents of so many nodes call until the block ends."""
        tasks = [asyncio.create_task(self.listen(number)) for number in range(nodes)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def listen(self, number: int) -> None:
        """Call, again and again, until cancelled."""
        while True:
            try:
                await self._call(number)
            except ssl.SSLCertVerificationError:
                await self._read_certificate()
            except (OSError, EOFError):
                pass
            self.ended += 1
            await asyncio.sleep(random.uniform(*_AGAIN_S))

    async def _read_certificate(self) -> None:
        try:
            data = (await self._api.get("/api/v1/namespaces/default/configmaps/orion-operator")).get("data") or {}
        except ApiError:
            return
        if (text := "".join(data.values())) and text != self._known:
            self._known, self._context = text, ssl.create_default_context(cadata=text)

    async def _call(self, number: int) -> None:
        own = (f"127.1.{number // 250}.{1 + number % 250}", 0)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=self._context, server_hostname="localhost", local_addr=own
        )
        try:
            writer.write(frame(Call(token=self._tokens[number])))
            while True:
                size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
                answer = Answer.FromString(await reader.readexactly(size))
                if not answer.HasField("pods"):
                    return
                assert len(answer.pods.pods) >= self._least, f"agent {number} was sent {answer.pods}"
                self.notified[number] = time.monotonic()
        finally:
            writer.transport.abort()


async def measure(cluster: LargeCluster, api: ApiServer, operator: Operator, agents: Agents, rest: float) -> Any:
    """Return all figures, in seconds, writes and MiB."""
    found: dict[str, Any] = {"first_start": await _start(operator, agents, cluster.nodes)}
    print(json.dumps(found), flush=True)
    for name, number in (("restart", signal.SIGTERM), ("restart_after_kill", signal.SIGKILL)):
        await operator.stop(number)
        found[name] = await _start(operator, agents, cluster.nodes)
        print(json.dumps({name: found[name]}), flush=True)
    await asyncio.sleep(10)
    await operator.callbacks()
    before, began, spent = await operator.writes(), time.monotonic(), operator.cpu()
    await asyncio.sleep(rest)
    after, cpu, took = await operator.writes(), operator.cpu() - spent, time.monotonic() - began
    found["at_rest"] = {"seconds": took, "cpu_s": cpu, "writes": {key: after[key] - before[key] for key in after}}
    found["at_rest"] |= {"memory_mib": operator.memory(), "loop": await operator.callbacks()}
    print(json.dumps({"at_rest": found["at_rest"]}), flush=True)
    times = [await _change(api, agents, each, cluster.nodes) for each in range(10)]
    found["change_of_10_pods"] = {
        "until_status_s": [round(status, 3) for status, _ in times],
        "until_status_median_s": statistics.median(status for status, _ in times),
        "until_agents_median_s": statistics.median(notified for _, notified in times),
        "loop": await operator.callbacks(),
    }
    return found


async def _start(operator: Operator, agents: Agents, nodes: int) -> dict[str, Any]:
    """Start the operator; return when it was ready, had reconciled everything, and had notified all agents."""
    began = time.monotonic()
    found: dict[str, Any] = {"load": os.getloadavg()[0], "ready_s": await operator.start()}
    found["ready_cpu_s"] = operator.cpu()

    async def all_notified() -> float:
        while sum(each > began for each in agents.notified.values()) < nodes:
            await asyncio.sleep(0.1)
        return time.monotonic() - began

    telling = asyncio.create_task(all_notified())
    await operator.settled()
    found |= {"settled_s": time.monotonic() - began, "settled_cpu_s": operator.cpu()}
    found |= {"agents_notified_s": await telling, "agents_notified_cpu_s": operator.cpu()}
    found |= {"writes": await operator.writes(), "memory_mib": operator.memory()}
    return found | {"loop": await operator.callbacks()}


async def _change(api: ApiServer, agents: Agents, number: int, nodes: int) -> tuple[float, float]:
    """Change a share; return the seconds until its status says so, and until its pods' agents have been notified."""
    path = f"{_KINDS}/namespaces/{_space(number)}/gpushares/{_share(number)}"
    pods = range(number, nodes * OURS_OF_A_NODE, SHARES)
    began = time.monotonic()
    changed = await api.patch(path, {"spec": {"memory": {"limit": f"{random.randint(5, 10_000)}Mi"}}})
    status = notified = 0.0
    while not (status and notified):
        await asyncio.sleep(0.02)
        conditions = (await api.get(path)).get("status", {}).get("conditions", ())
        observed = [each.get("observedGeneration") for each in conditions if each["type"] == "Ready"]
        if not status and observed == [changed["metadata"]["generation"]]:
            status = time.monotonic() - began
        if not notified and all(agents.notified[each // OURS_OF_A_NODE] > began for each in pods):
            notified = time.monotonic() - began
    return status, notified


def _names_of_device(number: int) -> dict[str, str]:
    names = {_gpu(0).lower(): _gpu(number).lower(), _gpu(0): _gpu(number), _node(0): _node(number)}
    for n in range(OURS_OF_A_NODE):
        pod = number * OURS_OF_A_NODE + n
        names |= {_pod(n): _pod(pod), _space(n): _space(pod), _share(n): _share(pod)}
    return names


def _named(text: str) -> Callable[[int], str]:
    return lambda number: text.format(number)


_node, _pod, _gpu = _named("node-{:04}"), _named("pod-{:05}"), _named("GPU-{:08x}-0000-4000-8000-000000000000")
_other = _named("other-{:02}")


def _space(number: int) -> str:
    return f"team-{number % NAMESPACES:02}"


def _share(number: int) -> str:
    return f"share-{number % SHARES:04}"


def _web(kind: int, number: int) -> str:
    return f"web-{kind:02}-{number:04}"


async def main() -> None:
    """Make the cluster's objects, measure, and write the raw data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", type=Path, required=True, help="the folder of a cluster of the testbed")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=5_000, help="each with one GPU, 20 pods and an agent")
    parser.add_argument("--made", action="store_true", help="reuse the objects of an earlier run")
    parser.add_argument("--rest", type=float, default=90, help="seconds to measure when idle")
    options = parser.parse_args()
    asyncio.sslproto.SSLProtocol.max_size = 16 * 1024  # else each of this process's connections takes 256 KiB
    kubeconfig = options.cluster / "kubeconfig"
    api = ApiServer(find_access(kubeconfig), "orion-bench", concurrency=32, attempt_s=120)
    etcd, began = Etcd(options.cluster), time.monotonic()
    cluster = LargeCluster(api, etcd, options.nodes)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve = ["--node-pods-address", f"127.0.0.1:{port}", "--node-pods-name", "localhost"]
    serve += ["--node-pods-agents", f"{AGENTS}/agent"]
    operator = Operator(kubeconfig, options.output.with_suffix(".log"), serve)
    try:
        if not options.made:
            await cluster.make()
            print(f"objects made in {time.monotonic() - began:.0f} s", flush=True)
        await cluster.until_listed()
        tokens = await asyncio.gather(*(cluster.token(number) for number in range(options.nodes)))
        print(f"tokens issued after {time.monotonic() - began:.0f} s", flush=True)
        agents = Agents(api, port, list(tokens))
        async with agents.connected(options.nodes):
            raw = {"cores": os.cpu_count(), "python": platform.python_version(), "load_at_start": os.getloadavg()}
            found = {"nodes": options.nodes, "pods": options.nodes * 20, "machine": raw}
            found |= await measure(cluster, api, operator, agents, options.rest)
            raw["load_at_end"] = os.getloadavg()
            options.output.write_text(json.dumps(found, indent=1))
            print(json.dumps(found, indent=1))
    finally:
        if operator.process is not None and operator.process.returncode is None:
            await operator.stop(signal.SIGTERM)
        await etcd.close()
        await api.close()


if __name__ == "__main__":
    asyncio.run(main())
    sys.exit()
