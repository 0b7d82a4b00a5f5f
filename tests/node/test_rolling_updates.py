"""Rolling updates of hp pods on a node whose hp slots are all taken (docs/rolling-updates.md)."""

from collections.abc import Iterator

import pytest
from kubernetes import client

from orion.crds.quantities import Memory
from testbed.node import Node
from testbed.orion import Orion
from tests.cluster.conftest import Kubectl
from tests.node.gpu_tenants import GpuNode, Tenants, serving, share
from tests.node.rolling_server import MINUTES, Rollout, server
from tests.node.shell_pods import shell_pod
from tests.node.slot_bookkeeping import SlotBookkeeping
from tests.waiting import eventually

pytestmark = pytest.mark.node

ASKING = """ask() { timeout 5 wget -qO- http://$SERVE_SERVICE_HOST > /dev/null; }
until ask; do sleep 0.1; done
while true; do ask && echo answered || echo failed; sleep 0.05; done"""
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "serve"},
    "spec": {"selector": {"app": "serve"}, "ports": [{"port": 80, "targetPort": 8080}]},
}
HP = "orion.gpu/hp"


@pytest.fixture
def rollout(orion: Orion, node: Node, tenants: Tenants, kubectl: Kubectl, api: client.ApiClient) -> Iterator[Rollout]:
    """The Deployment `serve` on a node with two GPUs, whose other hp slot has another pod."""
    orion.wait_until_advertised(node)
    tenants.create(serving("neighbour"))
    tenants.begun("neighbour")
    client.CoreV1Api(api).create_namespaced_service(tenants.namespace, SERVICE)
    tenants.create(server())
    found = Rollout(tenants, kubectl, node)
    found.finishes()
    yield found
    client.AppsV1Api(api).delete_namespaced_deployment("serve", tenants.namespace)
    eventually(lambda: found.label() is None, seconds=MINUTES)


@pytest.mark.timeout(1800)
def test_rolling_updates_finish_on_a_full_node_and_no_request_fails(
    rollout: Rollout, tenants: Tenants, gpus: GpuNode, node: Node, orion: Orion, api: client.ApiClient
) -> None:
    tenants.create(serving("outsider"), shell_pod("asking", ASKING))
    eventually(lambda: "answered" in tenants.log("asking"), what="no request was answered")
    for _ in range(2):
        before = next(iter(tenants.pods("serve")))
        rollout.restart()
        assert rollout.finishes() != before
    lines = tenants.log("asking").split()
    assert set(lines) == {"answered"}, f"{lines.count('failed')} of {len(lines)} requests failed"
    assert not tenants.pods()["outsider"].spec.node_name
    assert all(pod.status.phase != "Failed" for pod in tenants.pods().values())
    eventually(lambda: orion.allocatable(node)[HP] == 2 and rollout.label() is None, seconds=MINUTES)
    eventually(lambda: sorted(each["slots"]["hp"]["held"] for each in gpus.devices().values()) == [1, 1])
    SlotBookkeeping(node, api).settle()


@pytest.mark.timeout(1800)
def test_a_pod_that_passes_the_scheduler_by_does_not_start_in_the_slot_of_a_rollout(
    rollout: Rollout, tenants: Tenants, node: Node, orion: Orion
) -> None:
    # This new pod never becomes ready, so the old one stays, and both hold slots of one GPU.
    never = [{"op": "add", "path": "/spec/template/spec/nodeSelector", "value": {"nobody": "has-it"}}]
    apps = client.AppsV1Api(tenants.api)
    apps.patch_namespaced_deployment("serve", tenants.namespace, never)
    eventually(
        lambda: len(tenants.pods("serve")) == 2 and rollout.label(), seconds=MINUTES, what=lambda: str(rollout.shown())
    )
    eventually(lambda: orion.allocatable(node)[HP] == 3, seconds=MINUTES)
    outsider = serving("outsider")
    outsider["spec"]["nodeName"] = node.name
    tenants.create(outsider)

    def refused() -> bool:
        field = "involvedObject.name=outsider"
        events = tenants.core.list_namespaced_event(tenants.namespace, field_selector=field).items
        return any("replaces none of them" in (event.message or "") for event in events)

    eventually(refused, seconds=MINUTES)
    assert tenants.pods()["outsider"].status.phase == "Pending"
    tenants.delete("outsider")


def test_a_new_pod_without_room_for_its_memory_waits_with_an_event(
    rollout: Rollout, tenants: Tenants, gpus: GpuNode
) -> None:
    sizes = {Memory.read(each["memory"]["total"]).bytes for each in gpus.devices().values()}
    tenants.create(share(serving("serve"), memory={"request": f"{max(sizes) * 2 // 3 >> 20}Mi"}))
    # The old pod is older than the share, so it reserves the memory once its agent has the changed grant.
    eventually(lambda: any(Memory.read(each["memory"]["reserved"]).bytes for each in gpus.devices().values()))
    rollout.restart()

    def said() -> bool:
        events = tenants.core.list_namespaced_event(tenants.namespace).items
        return any(event.reason == "RolloutNeedsMemory" and "maxSurge" in (event.message or "") for event in events)

    eventually(said, seconds=MINUTES, what=lambda: str(rollout.shown()))
    assert rollout.label() is None
