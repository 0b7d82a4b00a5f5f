"""What the kubelet does with claims: it is slow to try again, and it learns late which pods have ended."""

from collections.abc import Iterator

import pytest
from kubernetes import client

from testbed.node import Node
from tests.node.claimed_gpus import DRA, Claims, claiming, held, until_nothing_is_left
from tests.node.gpu_tenants import GpuNode, Tenants, training
from tests.waiting import eventually

pytestmark = pytest.mark.node

MIB = 1 << 20
SYNC_SECONDS, RESOLUTION_SECONDS = 10.0, 1.0
""" The node's `syncFrequency`, which is a minute by default, and the resolution of an Event's times. """
RECONCILING_SECONDS = 300.0
""" Normally up to 60: so often the kubelet looks for claims of pods that have ended without it. """
WITHOUT_ROLE = "orion-without-role"


@pytest.fixture
def refused_class(api: client.ApiClient) -> Iterator[str]:
    """A class whose claims the driver refuses at once."""
    objects = client.CustomObjectsApi(api)
    spec = {"selectors": [{"cel": {"expression": 'device.driver == "orion.gpu"'}}]}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": WITHOUT_ROLE}, "spec": spec}
    objects.create_cluster_custom_object(**DRA, plural="deviceclasses", body=body)
    yield WITHOUT_ROLE
    objects.delete_cluster_custom_object(**DRA, plural="deviceclasses", name=WITHOUT_ROLE)


def test_the_kubelet_tries_a_refused_claim_again_only_when_it_looks_at_all_pods(
    tenants: Tenants, claims: Claims, gpus: GpuNode, refused_class: str
) -> None:
    """The limit: an error costs a pod a minute or more (here 10 s), so prepare waits for what can come."""
    claim, pod = claiming(training(memory=MIB), "be")
    claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = refused_class
    claims.create(claim)
    tenants.create(pod)

    def tried_twice() -> list[client.CoreV1Event]:
        found = tenants.core.list_namespaced_event(tenants.namespace).items
        return [each for each in found if "does not say one role" in (each.message or "") and (each.count or 0) > 1]

    (event,) = eventually(tried_twice, what="the kubelet tries again")
    pause = (event.last_timestamp - event.first_timestamp).total_seconds() / (event.count - 1)
    assert pause >= SYNC_SECONDS - RESOLUTION_SECONDS
    assert not held(gpus)
    tenants.delete("train")


@pytest.fixture
def kubelet_after(node: Node) -> Iterator[None]:
    """Afterwards, the kubelet runs."""
    yield
    if not node.runs("kubelet"):
        node.begin("kubelet")


@pytest.mark.usefixtures("kubelet_after")
def test_a_pod_that_goes_while_the_kubelet_is_away_gives_its_slot_back_when_it_is_here_again(
    tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node
) -> None:
    for name in ("stays", "goes"):
        claim, pod = claiming(training(name, memory=MIB), "be")
        claims.create(claim)
        tenants.create(pod)
        tenants.begun(name)
    slots = held(gpus)
    node.end("kubelet")
    tenants.core.delete_namespaced_pod("goes", tenants.namespace, grace_period_seconds=0)
    claims.delete("goes")
    eventually(lambda: "goes" not in tenants.pods(), what="the API server forgets the pod")
    assert held(gpus) == slots, "its processes still run"
    node.begin("kubelet")
    node.wait_until_ready()
    left = {device: pods for device, pods in slots.items() if pods == ("stays",)}
    eventually(lambda: held(gpus) == left, "its slot is given back", RECONCILING_SECONDS)
    claims.until_offered()
    claim, pod = claiming(training("next", memory=MIB), "be")
    claims.create(claim)
    tenants.create(pod)
    tenants.begun("next")
    tenants.reports("stays", 1)
    tenants.delete("stays", "next")
    until_nothing_is_left(gpus, node)
