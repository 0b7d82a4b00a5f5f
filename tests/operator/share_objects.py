"""Shares, pods and GPUs for tests of the operator's decisions, and what it writes about them."""

from typing import Any

from orion.operator.reconciler.decisions import decide
from orion.operator.reconciler.keys import Key, Kind
from orion.operator.reconciler.pods_of_nodes import PodsOfNodes
from orion.operator.reconciler.records import Named
from orion.operator.reconciler.writes import Write
from tests.operator.fake_cluster import NOW, Body, FakeCluster, Reconciler, state_of

UUID = "GPU-00000000-0000-4000-8000-00000000000{}"
GPU_NAME = UUID.format(0).lower()


def share(name: str = "s", **spec: Any) -> Body:
    spec = {"priority": "be", "selector": {"matchLabels": {"app": name}}} | spec
    return {"kind": "GPUShare", "metadata": {"namespace": "n", "name": name}, "spec": spec}


def pod(name: str, app: str = "s", priority: str | None = "be", running: bool = True, **meta: Any) -> Body:
    marks = {"orion/priority": priority} if priority else {}
    limits = {f"orion.gpu/{priority}": "1"} if priority else {}
    return {
        "kind": "Pod",
        "metadata": {"namespace": "n", "name": name, "labels": {"app": app}, "annotations": marks, **meta},
        "spec": {"nodeName": "node", "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Running" if running else "Pending"},
    }


def pinned(to: str, app: str = "s", **marks: str) -> Body:
    made = pod("p", app=app)
    made["metadata"]["annotations"] |= {"orion.gpu/share": to, **marks}
    return made


def device(number: int = 0, spec: Any = None, **status: Any) -> Body:
    uuid = UUID.format(number)
    status = {"node": "node", "uuid": uuid, "model": "NVIDIA H200", "mode": "timeslice"} | status
    return {"kind": "GPUDevice", "metadata": {"name": uuid.lower()}, "spec": spec or {}, "status": status}


def row(of: str, **more: Any) -> dict[str, Any]:
    place = {"slot": "be-0", "priority": "be", "processId": 7, "command": "python"}
    return {**place, "pod": {"namespace": "n", "name": of}, **more}


def slot(of: str, name: str = "be-0", share: str = "s", generation: int = 1, clients: int = 1) -> dict[str, Any]:
    place = {"name": name, "priority": name[:2], "pod": {"namespace": "n", "name": of}}
    return {**place, "share": share, "generation": generation, "clients": clients}


def unmanaged(of: str, **more: Any) -> dict[str, Any]:
    return {"processId": 9, "command": "miner", "pod": {"namespace": "n", "name": of}, **more}


NODE = {"kind": "Node", "metadata": {"name": "node"}}


def reconciled(*bodies: Body) -> FakeCluster:
    cluster = FakeCluster([NODE, *bodies])
    Reconciler(cluster, state_of(cluster)).run()
    return cluster


def status(cluster: FakeCluster, name: str = "s") -> dict[str, Any]:
    return dict(cluster.objects["GPUShare", "n", name]["status"])


def condition(cluster: FakeCluster, kind: str, name: str = "s") -> tuple[str, str, str]:
    found = next(each for each in status(cluster, name)["conditions"] if each["type"] == kind)
    return found["status"], found["reason"], found["message"]


def events(cluster: FakeCluster) -> list[tuple[str, str]]:
    return sorted((event.regarding["name"], event.reason) for event in cluster.events.values())


def writes(cluster: FakeCluster, key: Key, monotonic: float = 0.0) -> list[Write]:
    return decide(state_of(cluster), key, NOW, monotonic)


def grant_of(cluster: FakeCluster, name: str = "p", most: int | None = None) -> str:
    """Return the grant that the agent of the pod's node gets; empty: none."""
    state = state_of(cluster, most=most)
    state.take_changed_nodes()
    return next(each.grant for each in PodsOfNodes(state).of("node").pods if each.name == name)


POD = Key(Kind.POD, Named("n", "p"))
SHARE = Key(Kind.SHARE, Named("n", "s"))


PARKS = {"request": "1Gi", "limit": "8Gi", "oversubscribe": "park"}
SINCE = "2026-01-02T03:04:05Z"


def parked(of: str, number: int, since: str = SINCE) -> dict[str, Any]:
    return slot(of, f"be-{number}") | {"parked": {"since": since, "memory": "6Gi"}}


def used(of: str, number: int, due: float = 0.4, charged: float = 0.4, **more: Any) -> dict[str, Any]:
    usage = {"due": due, "charged": charged, "measured": charged, "waited": 0.6, **more}
    return slot(of, f"be-{number}") | {"computeRequest": 0.4, "computeLimit": 0.5, "usage": usage}
