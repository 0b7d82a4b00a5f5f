"""The objects of the large cluster (`large_cluster.py`): of each form one by the API server, and its copies in etcd."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from measurements.cluster.copied_objects import Etcd
from orion.api_server.requests import METADATA_LIST, ApiError, ApiServer
from orion.crds.annotations import PRIORITY_LABEL
from orion.crds.model import API_VERSION
from orion.node_pods import AUDIENCE

OURS_OF_A_NODE, OTHERS_OF_A_NODE = 4, 15
SHARES, NAMESPACES, OTHER_NAMESPACES = 2_000, 20, 80
AGENTS = "agents"
KINDS = f"/apis/{API_VERSION}"


class LargeCluster:
    """Makes the objects: of each form one by the API server, and its copies in etcd."""

    def __init__(self, api: ApiServer, etcd: Etcd, nodes: int) -> None:
        self._api, self._etcd, self.nodes = api, etcd, nodes
        self.agents: list[str] = []
        """ The uid of each node's agent pod. """

    async def make(self) -> None:
        """Make all objects."""
        for name in [AGENTS, *map(space, range(NAMESPACES)), *map(_other, range(OTHER_NAMESPACES))]:
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
        spec = {"priority": "be", "selector": {"matchLabels": {"app": share(0)}}, "memory": {"limit": "4Gi"}}
        body = {"apiVersion": API_VERSION, "kind": "GPUShare", "metadata": {"name": share(0)}, "spec": spec}
        uid = await self._new(f"{KINDS}/namespaces/{space(0)}/gpushares", body)
        names = ({share(0): share(n), space(0): space(n)} for n in range(1, SHARES))
        await self._etcd.copy(f"orion.gpu/gpushares/{space(0)}/{share(0)}", uid, names)

    async def _make_pods(self) -> None:
        mark = {"labels": {"app": share(0), PRIORITY_LABEL: "be"}, "annotations": {"orion/priority": "be"}}
        uid = await self._new_pod(space(0), {"name": _pod(0)} | mark, {"orion.gpu/be": "1"})
        ours = (
            {_pod(0): _pod(n), space(0): space(n), share(0): share(n), _node(0): _node(n // OURS_OF_A_NODE)}
            for n in range(1, self.nodes * OURS_OF_A_NODE)
        )
        await self._etcd.copy(f"pods/{space(0)}/{_pod(0)}", uid, ours)
        for make, spaces, first in ((space, NAMESPACES, 0), (_other, OTHER_NAMESPACES, 3)):
            # A fifth of the others is in namespaces with shares.
            uid = await self._new_pod(make(0), {"name": _web(first, 0), "labels": {"app": "web"}}, {"cpu": "1"})
            row = range(first, 3 if make is space else OTHERS_OF_A_NODE)
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
            row: dict[str, Any] = {"priority": "be", "pod": {"namespace": space(n), "name": _pod(n)}}
            rows.append({"name": f"be-{n}", **row, "share": share(n), "generation": 1, "clients": 1})
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
        uid = await self._new(f"{KINDS}/gpudevices", body)
        await self._api.patch(f"{KINDS}/gpudevices/{name}/status", {"status": status})
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


def _names_of_device(number: int) -> dict[str, str]:
    names = {_gpu(0).lower(): _gpu(number).lower(), _gpu(0): _gpu(number), _node(0): _node(number)}
    for n in range(OURS_OF_A_NODE):
        pod = number * OURS_OF_A_NODE + n
        names |= {_pod(n): _pod(pod), space(n): space(pod), share(n): share(pod)}
    return names


def _named(text: str) -> Callable[[int], str]:
    return lambda number: text.format(number)


_node, _pod, _gpu = _named("node-{:04}"), _named("pod-{:05}"), _named("GPU-{:08x}-0000-4000-8000-000000000000")
_other = _named("other-{:02}")


def space(number: int) -> str:
    """Return the namespace of a pod with a slot, or of a share."""
    return f"team-{number % NAMESPACES:02}"


def share(number: int) -> str:
    """Return the name of a pod's GPUShare."""
    return f"share-{number % SHARES:04}"


def _web(kind: int, number: int) -> str:
    return f"web-{kind:02}-{number:04}"
