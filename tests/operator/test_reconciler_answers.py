"""The answer to a write also contains earlier changes by other writers. The controller must reconcile these changes.

The watch events of such changes come later, and the controller ignores them as old. An answer can also come later than
the watch event of a change that followed the write; then the controller ignores the answer.
"""

import asyncio
import contextlib
import copy
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from orion.api_server.paths import NODES
from orion.api_server.requests import ApiServer
from orion.operator.reconciler.controller import SETTLE, Controller
from orion.operator.reconciler.keys import Kind
from orion.operator.reconciler.lease import Alone
from orion.operator.reconciler.metrics import Metrics
from orion.operator.reconciler.records import Named
from orion.operator.reconciler.writes import PatchNode, PatchShare
from tests.operator.fake_cluster import Body, FakeCluster, state_of
from tests.waiting import DEADLINE

UUID = "GPU-00000000-0000-4000-8000-000000000001"
NODE: Body = {"kind": "Node", "metadata": {"name": "node", "labels": {"orion.gpu/mode": "timeslice"}}}
SHARE: Body = {
    "kind": "GPUShare",
    "metadata": {"namespace": "n", "name": "s"},
    "spec": {"priority": "be", "selector": {"matchLabels": {"app": "s"}}, "failClosed": True},
}
POD: Body = {
    "kind": "Pod",
    "metadata": {"namespace": "n", "name": "p", "labels": {"app": "s"}, "annotations": {"orion/priority": "be"}},
    "spec": {"nodeName": "node", "containers": [{"name": "main", "resources": {"limits": {"orion.gpu/be": "1"}}}]},
    "status": {"phase": "Pending"},
}
UNMANAGED = {"processId": 9, "command": "miner", "pod": {"namespace": "n", "name": "p"}}
DEVICE: Body = {
    "kind": "GPUDevice",
    "metadata": {"name": UUID.lower()},
    "spec": {},
    "status": {"node": "node", "uuid": UUID, "model": "NVIDIA H200", "mode": "timeslice", "unmanaged": [UNMANAGED]},
}


class FakeApi:
    """An API server that applies patches. Before the first one, it calls `other_writer`, which changes an object."""

    def __init__(self, cluster: FakeCluster, other_writer: Callable[[], object]) -> None:
        self.cluster, self.other_writer = cluster, other_writer
        self.posted: list[str] = []
        self.patched: list[str] = []
        self.nodes: list[Body] = []
        """ The answer to a list of nodes. """
        self.asked = 0

    async def patch(self, path: str, body: Mapping[str, Any], kind: str = "") -> Body:
        self.patched.append(path)
        other_writer, self.other_writer = self.other_writer, lambda: None
        other_writer()
        if "/nodes/" in path:
            answer = self.cluster.carry_out(PatchNode(Named("", "node"), body))
        else:
            answer = self.cluster.carry_out(PatchShare(Named("n", "s"), body))
        assert answer is not None, path
        return answer

    async def get(self, path: str, accept: str = "", **query: str) -> Body:
        assert (path, query) == (NODES, {"fieldSelector": "metadata.name=node"})
        self.asked += 1
        return {"items": self.nodes}

    async def post(self, path: str, body: Mapping[str, Any]) -> Body:
        self.posted.append(path)
        return {}


def controller_of(api: FakeApi) -> Controller:
    metrics = Metrics()
    return Controller(state_of(api.cluster), cast("ApiServer", api), Alone(metrics), metrics, "test")


async def work_until(api: FakeApi, condition: Callable[[], object], controller: Controller | None = None) -> None:
    controller = controller or controller_of(api)
    await controller.begin()
    worker = asyncio.create_task(controller.work())
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.01)
    worker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await worker


async def test_a_label_that_another_writer_removes_during_a_write_is_set_again() -> None:
    cluster = FakeCluster([NODE, DEVICE])
    without = {"name": "node", "labels": {}, "uid": cluster.objects["Node", "", "node"]["metadata"]["uid"]}
    api = FakeApi(cluster, lambda: cluster.put({"kind": "Node", "metadata": without}))
    labels = {"orion.gpu/gpus": "1", "orion.gpu/gpu-model": "NVIDIA-H200", "orion.gpu/mode": "timeslice"}
    await work_until(api, lambda: cluster.objects["Node", "", "node"]["metadata"]["labels"] == labels)


async def test_a_gpu_of_a_node_that_the_watch_has_not_reported_yet_is_left_to_its_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(SETTLE, Kind.DEVICE, 0.01)
    cluster = FakeCluster([DEVICE])
    api = FakeApi(cluster, lambda: None)
    api.nodes = [NODE]
    await work_until(api, lambda: api.asked > 1)
    assert api.patched == []


async def test_the_agent_of_an_evicted_pod_learns_that_it_leaves() -> None:
    """The watch reports nothing new then, so the change must be noted when the eviction is answered."""
    running = copy.deepcopy(POD) | {"status": {"phase": "Running"}}
    api = FakeApi(FakeCluster([NODE, SHARE, DEVICE, running]), lambda: None)
    controller = controller_of(api)
    controller.state.take_changed_nodes()
    await work_until(api, lambda: (pod := controller.state.pod(Named("n", "p"))) and pod.leaving, controller)
    assert "/api/v1/namespaces/n/pods/p/eviction" in api.posted
    assert controller.state.take_changed_nodes() == {"node"}
