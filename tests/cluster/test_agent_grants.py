"""Grants of GPUShares reach processes under the hook, through a real operator; the agent has the chart's rights."""

import contextlib
import signal
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
from tests.cluster.serving_operator import ServingOperator, serving_operator
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

MIB = 1 << 20
OUT_OF_MEMORY = 2


class World:
    """A node with its agent and pods on it, and the operator, which a test may end."""

    def __init__(self, node: AgentNode, view: ClusterView, operator: ServingOperator) -> None:
        self.node, self.view, self.operator = node, view, operator

    def run(self, name: str, slot: str, **spec: Any) -> str:
        """Start a pod's container in a slot, as the kubelet does; return the pod that the agent finds for the slot."""
        self.view.pod(name, self.node.node, slot[:2], **spec)
        self.node.kubelet.give(name, (self.node.uuids[0], slot), namespace=self.view.namespace)
        return self.prepare(slot)

    def prepare(self, slot: str) -> str:
        """Prepare a slot until the agent names its pod: on a loaded machine one try may take over a second."""
        with AgentClient(self.node.root) as administrator:
            pod = eventually(lambda: administrator.prepare_slot(self.node.uuids[0], slot).pod)
        return pod.removeprefix(f"{self.view.namespace}/")

    def end(self, name: str, phase: str = "Succeeded") -> None:
        self.view.core.patch_namespaced_pod_status(name, self.view.namespace, {"status": {"phase": phase}})
        self.node.kubelet.give(name, namespace=self.view.namespace)

    def delete(self, name: str) -> None:
        self.view.core.delete_namespaced_pod(name, self.view.namespace, grace_period_seconds=0)

    def limit(self, slot: str) -> int:
        (found,) = [each for each in self.node.gpu().slots if each.name == slot]
        return found.memory_limit_bytes

    def until_limit(self, slot: str, limit: int) -> None:
        eventually(lambda: self.limit(slot) == limit, what=self.node.agent_log())

    def held(self) -> list[str]:
        with AgentClient(self.node.root) as administrator:
            return list(next(administrator.watch_devices()).devices[0].held)

    def end_operator(self) -> None:
        """Kill the operator; return when the agent has noticed."""
        self.operator.process.end(signal.SIGKILL)
        eventually(lambda: "does not answer" in self.node.agent_log(), what=self.node.agent_log())


def memory(limit: int) -> dict[str, Any]:
    return {"memory": {"limit": f"{limit // MIB}Mi"}}


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
    with contextlib.ExitStack() as stack:
        operator = stack.enter_context(serving_operator(api, control_plane.kubeconfig, tmp_path))
        grant_rights(api, operator, user)
        view = ClusterView(api, namespace)
        made = machine(c_build, operator, fake_node("a"), kubeconfig_for(user), namespace, view, gpus=1)
        node = stack.enter_context(made)
        node.start_agent()
        yield World(node, view, operator)


def test_a_change_of_a_share_reaches_a_running_process(world: World) -> None:
    assert world.run("a", "be-3", **memory(64 * MIB)) == "a"
    process = world.node.start("be-3")
    assert process.must(f"alloc {8 * MIB}").result == 0
    version = world.view.core.read_namespaced_pod("a", world.view.namespace).metadata.resource_version
    world.view.change_share("a", **memory(4 * MIB))
    begin = time.monotonic()
    eventually(lambda: process.do(f"alloc {MIB}").result == OUT_OF_MEMORY, world.node.agent_log, 10)
    print(f"after {time.monotonic() - begin:.3f} s")
    world.view.change_share("a", **memory(1024 * MIB))
    eventually(lambda: process.do(f"alloc {MIB}").result == 0, world.node.agent_log, 10)
    now = world.view.core.read_namespaced_pod("a", world.view.namespace).metadata.resource_version
    assert now == version  # no write to the pod


def test_a_slot_is_free_after_the_end_of_its_pod(world: World) -> None:
    world.run("a", "be-0", **memory(MIB))
    world.run("b", "be-1", **memory(2 * MIB))
    assert (world.held(), world.limit("be-0"), world.limit("be-1")) == (["be-0", "be-1"], MIB, 2 * MIB)
    world.end("a")
    world.delete("b")
    eventually(lambda: world.held() == ["be-1"], what=world.node.agent_log())  # the kubelet still lists be-1
    assert world.limit("be-0") == 0
    assert world.run("c", "be-1", **memory(3 * MIB)) == "c"
    assert (world.held(), world.limit("be-1")) == (["be-1"], 3 * MIB)


def test_a_slot_is_free_after_the_end_of_its_pod_even_if_the_kubelet_still_lists_it(world: World) -> None:
    world.run("a", "be-0", **memory(MIB))
    world.view.core.patch_namespaced_pod_status("a", world.view.namespace, {"status": {"phase": "Succeeded"}})
    eventually(lambda: world.held() == [], what=world.node.agent_log())


def test_the_next_agent_knows_holders_and_grants_without_the_operator(world: World) -> None:
    policy = {"policy": "gate", "tuning": {"window": "250us"}}
    world.run("a", "hp-0", **memory(8 * MIB), **policy)
    eventually(lambda: world.node.gpu().policy == "gate")
    process = world.node.start("hp-0")
    world.node.kill_agent()
    world.operator.process.end(signal.SIGKILL)
    world.node.kubelet.stop()
    world.node.start_agent()
    world.node.until_joined(process)
    assert (world.held(), world.limit("hp-0"), world.node.gpu().window_us) == (["hp-0"], 8 * MIB, 250)
    world.node.kubelet.start()
    world.view.change_share("a", **memory(16 * MIB))
    process.kill()
    assert world.prepare("hp-0") == "a"  # its container restarts: the last known grant stays
    assert (world.held(), world.limit("hp-0")) == (["hp-0"], 8 * MIB)
    world.operator.start()
    world.until_limit("hp-0", 16 * MIB)
    world.end("a", "Failed")
    eventually(lambda: world.node.gpu().policy == "orion", what=world.node.agent_log())
    assert world.held() == []


def test_without_the_operator_grants_stay_and_its_next_replica_has_another_certificate(world: World) -> None:
    world.run("a", "be-0", **memory(64 * MIB))
    process = world.node.start("be-0")
    before = world.operator.published()
    world.end_operator()
    world.view.change_share("a", **memory(4 * MIB))
    assert process.must(f"alloc {8 * MIB}").result == 0
    assert world.prepare("be-0") == "a"  # its container restarts
    assert world.limit("be-0") == 64 * MIB
    world.operator.start()
    assert set(world.operator.published().values()) != set(before.values())
    world.until_limit("be-0", 4 * MIB)


def test_a_pod_keeps_its_last_grant_when_its_share_is_deleted(world: World) -> None:
    world.run("a", "be-0", **memory(MIB))
    world.view.delete_share("a")
    world.run("b", "be-1", **memory(2 * MIB))  # the operator has learnt of the deletion before this
    assert world.limit("be-0") == MIB
    world.node.kill_agent()
    world.node.start_agent()
    world.run("c", "be-2", **memory(3 * MIB))
    assert world.prepare("be-0") == "a"  # its container restarts
    assert world.limit("be-0") == MIB
