"""Pods that crash, are evicted and drained: a pod holds its slot exactly as long as the pod exists."""

import json

import pytest
from kubernetes import client

from orion.node_agent.api import agent_pb2
from testbed.node import Node
from testbed.orion import Orion
from tests.cluster.conftest import Kubectl
from tests.node.gpu_tenants import GpuNode, Tenants, deployed, serving, training
from tests.node.running_pod import RunningPod
from tests.node.slot_bookkeeping import SlotBookkeeping
from tests.waiting import eventually

pytestmark = pytest.mark.node

CRASHES = 3
REFUSED_FOR_NOW = 429


@pytest.fixture
def books(orion: Orion, node: Node, api: client.ApiClient) -> SlotBookkeeping:
    return SlotBookkeeping(node, api)


def pods_with_slots(books: SlotBookkeeping) -> list[str]:
    """The names of the pods that hold slots, once all sources agree; one name for each slot."""
    books.settle()
    return sorted(holder.pod for holder in books.held().values())


def evict(tenants: Tenants, name: str) -> str:
    """Request an eviction as `kubectl drain` does; return why it is refused for now, or nothing."""
    body = {"metadata": {"name": name, "namespace": tenants.namespace}}
    try:
        tenants.core.create_namespaced_pod_eviction(name, tenants.namespace, body)
    except client.ApiException as error:
        if error.status != REFUSED_FOR_NOW:
            raise
        return str(json.loads(error.body)["details"])
    return ""


def test_a_pod_that_crashes_in_a_loop_keeps_its_slot_for_one_container_at_a_time(
    tenants: Tenants, gpus: GpuNode, books: SlotBookkeeping
) -> None:
    tenants.create(training("crashing"))
    tenants.begun("crashing")
    (device,) = books.held()
    pod = RunningPod.of(gpus, tenants.pods()["crashing"])
    seen: list[tuple[int, int]] = []

    def fresh_clients() -> list[agent_pb2.Client]:
        """The client of the slot, if it is a new one; the slot never has two clients."""
        clients = gpus.slot(device).clients
        assert len(clients) <= 1
        assert len(pod.processes()) <= 1
        fresh = [each for each in clients if (each.place, each.generation) not in seen]
        if not fresh:
            tenants.hurry("crashing")
        return fresh

    for _ in range(CRASHES):
        (fresh,) = eventually(fresh_clients)
        seen.append((fresh.place, fresh.generation))
        gpus.node.run(["kill", "-KILL", str(fresh.process_id)])
        if len(seen) == 1:
            tenants.create(training("calm"))  # starts while the other pod's container is away or just starts
    eventually(fresh_clients)
    tenants.begun("calm")
    assert pods_with_slots(books) == ["calm", "crashing"]
    assert books.held()[device].pod == "crashing"
    eventually(lambda: tenants.pods()["crashing"].status.container_statuses[0].restart_count == CRASHES)


def test_an_evicted_pod_frees_its_slot_and_a_disruption_budget_is_respected(
    tenants: Tenants, books: SlotBookkeeping
) -> None:
    tenants.create(deployed(training("train"), replicas=2))
    first, second = tenants.all_begun("train", 2)
    budgets = client.PolicyV1Api(tenants.api)
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "train"}}}
    budgets.create_namespaced_pod_disruption_budget(tenants.namespace, {"metadata": {"name": "train"}, "spec": spec})
    eventually(lambda: "needs 2 healthy pods and has 2" in evict(tenants, first))
    assert sorted(tenants.pods("train")) == [first, second]

    budgets.patch_namespaced_pod_disruption_budget("train", tenants.namespace, {"spec": {"minAvailable": 1}})
    eventually(lambda: not evict(tenants, first))
    eventually(lambda: first not in tenants.pods("train"))
    after = tenants.all_begun("train", 2)
    assert second in after
    assert pods_with_slots(books) == after


def test_a_drained_node_has_all_slots_free_and_gets_its_tenants_back(
    tenants: Tenants, books: SlotBookkeeping, kubectl: Kubectl, node: Node
) -> None:
    tenants.create(serving("alone"), deployed(training("train"), replicas=1))
    tenants.begun("alone")
    (before,) = tenants.all_begun("train", 1)
    assert pods_with_slots(books) == ["alone", before]
    try:
        kubectl("drain", node.name, "--ignore-daemonsets", "--force", "--timeout=50s")
        assert pods_with_slots(books) == []
        eventually(lambda: len(tenants.pods()) == 1 and before not in tenants.pods())
        (after,) = tenants.pods()
        assert tenants.pods()[after].spec.node_name is None
    finally:
        kubectl("uncordon", node.name)
    tenants.begun(after)
    assert pods_with_slots(books) == [after]
