"""Grants of real pods at a real API server reach processes under the hook; the agent has the chart's rights."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from orion.node_agent.api.client import AgentClient
from testbed.access import Access
from tests.cluster import api_types
from tests.cluster.agent_process import AgentNode, ClusterView, grant_rights, machine
from tests.cluster.conftest import FakeNode
from tests.cluster.cut_proxy import CutProxy
from tests.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

MIB = 1 << 20
OUT_OF_MEMORY = 2


class World:
    """A node with its agent and pods on it, through an API server that can be cut off."""

    def __init__(self, node: AgentNode, view: ClusterView, proxy: CutProxy) -> None:
        self.node, self.proxy = node, proxy
        self._view, self._core, self._namespace = view, view.core, view.namespace

    def run(self, name: str, slot: str, annotation: dict[str, Any] | None = None) -> str:
        """Start a pod's container in a slot, as the kubelet does; return the pod that the agent finds for the slot."""
        self._view.pod(name, self.node.node, annotation)
        self.node.kubelet.give(name, (self.node.uuids[0], slot), namespace=self._namespace)
        return self.prepare(slot)

    def prepare(self, slot: str) -> str:
        """Prepare a slot until the agent names its pod: on a loaded machine one try may take over a second."""
        with AgentClient(self.node.root) as administrator:
            pod = eventually(lambda: administrator.prepare_slot(self.node.uuids[0], slot).pod)
        return pod.removeprefix(f"{self._namespace}/")

    def grant(self, name: str, annotation: dict[str, Any]) -> None:
        body = {"metadata": {"annotations": {"orion.gpu/grant": json.dumps(annotation)}}}
        self._core.patch_namespaced_pod(name, self._namespace, body)

    def end(self, name: str, phase: str = "Succeeded") -> None:
        self._core.patch_namespaced_pod_status(name, self._namespace, {"status": {"phase": phase}})
        self.node.kubelet.give(name, namespace=self._namespace)

    def delete(self, name: str) -> None:
        self._core.delete_namespaced_pod(name, self._namespace, grace_period_seconds=0)

    def limit(self, slot: str) -> int:
        (found,) = [each for each in self.node.gpu().slots if each.name == slot]
        return found.memory_limit_bytes

    def held(self) -> list[str]:
        with AgentClient(self.node.root) as administrator:
            return list(next(administrator.watch_devices()).devices[0].held)


def grant(limit: int, priority: str = "be", **fields: Any) -> dict[str, Any]:
    container = {"slots": 1, "memoryLimitBytes": limit}
    return {"format": 1, "priority": priority, "share": "s", "containers": {"main": container}, **fields}


@pytest.fixture
def world(
    api: client.ApiClient,
    c_build: Path,
    namespace: str,
    control_plane: Access,
    fake_node: FakeNode,
    kubeconfig_for: Callable[..., Path],
    tmp_path: Path,
) -> Iterator[World]:
    api_types.establish(api)
    user = f"system:serviceaccount:{namespace}:orion-agent"
    grant_rights(api, {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}, namespace)
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(CutProxy(control_plane.url))
        through = proxy.kubeconfig(kubeconfig_for(user), tmp_path / "through.kubeconfig")
        view = ClusterView(api, namespace)
        node = stack.enter_context(machine(c_build, fake_node("a"), through, namespace, view, gpus=1))
        node.start_agent()
        yield World(node, view, proxy)


def test_a_change_of_a_pods_grant_reaches_its_running_process(world: World) -> None:
    assert world.run("a", "be-3", grant(64 * MIB)) == "a"
    process = world.node.start("be-3")
    assert process.must(f"alloc {8 * MIB}").result == 0
    world.grant("a", grant(4 * MIB))
    begin = time.monotonic()
    eventually(lambda: process.do(f"alloc {MIB}").result == OUT_OF_MEMORY, world.node.agent_log(), 10)
    print(f"after {time.monotonic() - begin:.3f} s")
    world.grant("a", grant(1024 * MIB))
    eventually(lambda: process.do(f"alloc {MIB}").result == 0, world.node.agent_log(), 10)


def test_a_slot_is_free_after_the_end_of_its_pod(world: World) -> None:
    world.run("a", "be-0", grant(MIB))
    world.run("b", "be-1", grant(2 * MIB))
    assert (world.held(), world.limit("be-0"), world.limit("be-1")) == (["be-0", "be-1"], MIB, 2 * MIB)
    world.end("a")
    world.delete("b")
    eventually(lambda: world.held() == ["be-1"], what=world.node.agent_log())  # the kubelet still lists be-1
    assert world.limit("be-0") == 0
    assert world.run("c", "be-1", grant(3 * MIB)) == "c"
    assert (world.held(), world.limit("be-1")) == (["be-1"], 3 * MIB)


def test_the_next_agent_knows_holders_and_grants_without_the_api_server(world: World) -> None:
    policy = {"policy": "gate", "windowUs": 250}
    world.run("a", "hp-0", grant(8 * MIB, "hp", policy=policy, shareUid="u", shareGeneration=1))
    eventually(lambda: world.node.gpu().policy == "gate")
    process = world.node.start("hp-0")
    world.node.kill_agent()
    world.proxy.cut()
    world.node.kubelet.stop()
    world.node.start_agent()
    world.node.until_joined(process)
    assert (world.held(), world.limit("hp-0"), world.node.gpu().window_us) == (["hp-0"], 8 * MIB, 250)
    world.node.kubelet.start()
    world.grant("a", grant(16 * MIB, "hp", policy=policy))
    process.kill()
    assert world.prepare("hp-0") == "a"  # its container restarts: the last known grant stays
    assert (world.held(), world.limit("hp-0")) == (["hp-0"], 8 * MIB)
    world.proxy.fix()
    eventually(lambda: world.limit("hp-0") == 16 * MIB, what=world.node.agent_log())
    world.end("a", "Failed")
    eventually(lambda: world.node.gpu().policy == "orion", what=world.node.agent_log())
    assert world.held() == []
