"""The chart with allocation=by-node on a real cluster: a node moves to claims and back, and the driver goes last.

The tests run in this order and depend on each other: each finds the release in the state that the previous one left.
"""

from typing import Any

import pytest
from kubernetes import client

from orion.crds.annotations import ALLOCATION
from testbed.errors import Failed
from testbed.node import Node
from testbed.release import RESOURCES, Release
from tests.chart.on_cluster.remains import nothing_is_left
from tests.cluster.conftest import Kubectl
from tests.node.gpu_tenants import GpuNode, Tenants, main_container, serving, share, training
from tests.waiting import eventually

pytestmark = pytest.mark.node

SIMULATED = {"simulatedGPUs": 2, "webhook.terminationGracePeriodSeconds": 30, "uninstall.claimsSeconds": 20}
BY_NODE = {**SIMULATED, "allocation": "by-node"}
BY_NODE_REVISION = 2
ALL, NONE = dict(zip(RESOURCES, (2, 16), strict=True)), dict.fromkeys(RESOURCES, 0)


@pytest.fixture(scope="module")
def tenants(api: client.ApiClient) -> Tenants:
    return Tenants(api, "choosing")


def label(kubectl: Kubectl, node: Node, value: str) -> None:
    kubectl("label", "node", node.name, f"{ALLOCATION}={value}", "--overwrite")


def givers(gpus: GpuNode) -> set[str]:
    return {status.get("allocation", "") for status in gpus.devices().values()}


def ready(gpus: GpuNode) -> dict[str, str]:
    """The reasons and messages of the condition Ready of the node's GPUs."""
    conditions: list[dict[str, Any]] = [each for status in gpus.devices().values() for each in status["conditions"]]
    return {each["reason"]: each.get("message", "") for each in conditions if each["type"] == "Ready"}


def waits_for(gpus: GpuNode, pod: str) -> None:
    eventually(lambda: pod in ready(gpus).get("HandingOver", ""), what=f"it waits for {pod}: {ready(gpus)}")


def log(kubectl: Kubectl, release: Release, component: str, container: str) -> str:
    labels = f"--selector=app.kubernetes.io/component={component}"
    return kubectl("logs", f"--namespace={release.namespace}", labels, f"--container={container}", "--tail=-1")


def slices(kubectl: Kubectl) -> list[str]:
    return kubectl("get", "resourceslices", "--output=name").split()


def claims(kubectl: Kubectl, tenants: Tenants) -> list[str]:
    return kubectl("get", "resourceclaims", f"--namespace={tenants.namespace}", "--output=name").split()


def test_a_cluster_with_pods_changes_to_by_node(
    release: Release, kubectl: Kubectl, tenants: Tenants, gpus: GpuNode, node: Node
) -> None:
    release.install(SIMULATED)
    tenants.make_namespace()
    tenants.create(serving())
    tenants.begun("serve")
    release.upgrade(BY_NODE)
    eventually(lambda: givers(gpus) == {"device-plugin"}, what=f"{givers(gpus)} give")
    eventually(lambda: release.allocatable(node.name) == ALL)
    assert slices(kubectl) == []
    assert "the DRA driver waits: the device plugin gives" in log(kubectl, release, "dra-driver", "dra-driver")


def test_a_node_changes_hands_when_its_last_pod_has_ended(
    release: Release, kubectl: Kubectl, tenants: Tenants, gpus: GpuNode, node: Node
) -> None:
    label(kubectl, node, "dra")
    waits_for(gpus, f"{tenants.namespace}/serve")
    with pytest.raises(Failed, match=r"choosing/serve has hp-0.* allocation would change from by-node to dra"):
        release.upgrade({**SIMULATED, "allocation": "dra"})
    assert "choosing/serve" in log(kubectl, release, "dra-driver", "dra-driver")
    eventually(lambda: release.allocatable(node.name) == {RESOURCES[0]: 1, RESOURCES[1]: 0})
    tenants.delete("serve")
    eventually(lambda: givers(gpus) == {"dra"} and "Advertised" in ready(gpus), what=f"{ready(gpus)}")
    eventually(lambda: slices(kubectl) == [f"resourceslice.resource.k8s.io/{node.name}-orion.gpu"])
    eventually(lambda: release.allocatable(node.name) == NONE)
    assert "the device plugin waits: the DRA driver gives" in log(kubectl, release, "node", "device-plugin")


def test_the_pods_go_where_they_can_be_served(
    release: Release, kubectl: Kubectl, tenants: Tenants, gpus: GpuNode
) -> None:
    floor = training("floor")
    tenants.create(share(floor, compute={"request": 0.3}), floor, serving("plain"))
    tenants.begun("floor")
    assert len(claims(kubectl, tenants)) == 1
    eventually(lambda: gpus.holders() == {"be-0": "floor"}, what=f"the holders are {gpus.holders()}")
    with pytest.raises(Failed, match=r"choosing/floor has be-0.* would change from by-node to device-plugin"):
        release.upgrade(SIMULATED)
    plain = tenants.pods("plain")["plain"]
    assert plain.status.phase == "Pending"  # the default is the device plugin, and no node has it
    assert RESOURCES[0] in main_container(plain.to_dict())["resources"]["limits"]


def test_a_node_goes_back_and_the_pod_that_waited_runs(
    release: Release, kubectl: Kubectl, tenants: Tenants, gpus: GpuNode, node: Node
) -> None:
    kubectl("label", "node", node.name, f"{ALLOCATION}-")
    waits_for(gpus, f"{tenants.namespace}/floor")
    assert "choosing/floor" in log(kubectl, release, "node", "device-plugin")
    assert release.allocatable(node.name) == NONE
    tenants.delete("floor")
    eventually(lambda: givers(gpus) == {"device-plugin"})
    tenants.begun("plain")
    assert claims(kubectl, tenants) == []
    tenants.delete("plain")


def phases(release: Release) -> set[str]:
    return {pod["status"]["phase"] for pod in release.pods()}


def test_an_uninstall_is_refused_while_a_pod_has_a_claim(
    release: Release, kubectl: Kubectl, tenants: Tenants, gpus: GpuNode, node: Node
) -> None:
    label(kubectl, node, "dra")
    eventually(lambda: givers(gpus) == {"dra"}, what=f"{ready(gpus)}")
    tenants.create(training("floor"))
    tenants.begun("floor")
    with pytest.raises(Failed, match="orion-await-claims") as refused:
        release.uninstall()
    assert f"cannot end without its driver: {tenants.namespace}/floor" in str(refused.value)
    eventually(lambda: phases(release) == {"Running"}, what="the pod that refused goes with its Job, a moment later")
    release.rollback(BY_NODE_REVISION)  # who wants to keep Orion instead does this
    assert phases(release) == {"Running"}
    assert tenants.reports("floor", 1)


def test_nothing_is_left_after_the_uninstall_once_the_pod_has_ended(
    release: Release, kubectl: Kubectl, tenants: Tenants, node: Node
) -> None:
    tenants.core.delete_namespaced_pod("floor", tenants.namespace)  # the uninstall waits until it has ended
    release.uninstall()
    assert tenants.pods() == {}
    kubectl("delete", "namespace", tenants.namespace)
    kubectl("label", "node", node.name, f"{ALLOCATION}-")
    nothing_is_left(kubectl, release)
