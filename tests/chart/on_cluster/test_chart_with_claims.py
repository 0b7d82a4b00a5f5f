"""The chart with allocation=dra on a real cluster: the same pods get ResourceClaims, and the way back is safe.

The tests run in this order and depend on each other: each finds the release in the state that the previous one left.
"""

import pytest
from kubernetes import client

from testbed.errors import Failed
from testbed.node import Node
from testbed.release import RESOURCES, Release
from tests.chart.on_cluster.remains import nothing_is_left
from tests.cluster.conftest import Kubectl
from tests.node.gpu_tenants import GpuNode, Tenants, serving, share, training
from tests.waiting import eventually

pytestmark = pytest.mark.node

SIMULATED = {"simulatedGPUs": 2, "webhook.terminationGracePeriodSeconds": 30}
CLAIMS = {**SIMULATED, "allocation": "dra"}


@pytest.fixture(scope="module")
def tenants(api: client.ApiClient) -> Tenants:
    return Tenants(api, "claiming")


def test_the_examples_pods_run_with_claims(
    release: Release, kubectl: Kubectl, tenants: Tenants, gpus: GpuNode, node: Node
) -> None:
    release.install(CLAIMS)
    tenants.make_namespace()
    for pod in (serving(), training()):
        tenants.create(share(pod, memory={"limit": "6Gi"}), pod)
    for name in ("serve", "train"):
        tenants.begun(name)
    assert release.allocatable(node.name) == dict.fromkeys(RESOURCES, 0)
    eventually(lambda: gpus.holders() == {"hp-0": "serve", "be-0": "train"}, what=f"the holders are {gpus.holders()}")
    claims = kubectl("get", "resourceclaims", f"--namespace={tenants.namespace}", "--output=name").split()
    assert len(claims) == 2


def test_the_chart_tests_a_pod_with_a_claim(release: Release) -> None:
    assert "the hook is loaded, the agent answers" in release.test()


def test_the_way_back_is_refused_while_pods_hold_slots(release: Release) -> None:
    with pytest.raises(Failed, match=r"pods hold slots .* allocation would change from dra to device-plugin"):
        release.upgrade(SIMULATED)


def test_the_same_pods_run_with_the_device_plugin_afterwards(
    release: Release, kubectl: Kubectl, tenants: Tenants, gpus: GpuNode, node: Node
) -> None:
    tenants.delete("serve", "train")
    eventually(lambda: gpus.holders() == {}, what=f"slots are held by {gpus.holders()}")
    release.upgrade(SIMULATED)
    eventually(lambda: release.allocatable(node.name) == dict(zip(RESOURCES, (2, 16), strict=True)))
    for pod in (serving(), training()):
        tenants.create(pod)
    for name in ("serve", "train"):
        tenants.begun(name)
    assert not kubectl("get", "resourceclaims", f"--namespace={tenants.namespace}", "--output=name").split()
    tenants.delete("serve", "train")


def test_a_rollback_brings_the_claims_back_and_away_from_under_a_pod_which_ends_after_the_next(
    release: Release, tenants: Tenants, gpus: GpuNode
) -> None:
    """Helm renders nothing in a rollback, so the chart cannot refuse it."""
    eventually(lambda: gpus.holders() == {}, what=f"slots are held by {gpus.holders()}")
    release.rollback()
    tenants.create(training())
    tenants.begun("train")
    eventually(lambda: gpus.holders() == {"be-0": "train"}, what=f"the holders are {gpus.holders()}")
    release.rollback()
    tenants.reports("train", 1)
    tenants.core.delete_namespaced_pod("train", tenants.namespace)
    tenants.create(serving())
    tenants.begun("serve")
    assert tenants.pods()["train"].metadata.deletion_timestamp, "it waits for the driver"
    assert gpus.holders() == {"be-0": "train", "hp-0": "serve"}
    tenants.delete("serve")
    release.rollback()
    eventually(lambda: "train" not in tenants.pods(), what="the driver is back, so the pod ends", seconds=180)
    eventually(lambda: gpus.holders() == {}, what=f"slots are held by {gpus.holders()}")


def test_nothing_is_left_after_an_uninstall(release: Release, kubectl: Kubectl, tenants: Tenants) -> None:
    kubectl("delete", "namespace", tenants.namespace)
    release.uninstall()
    nothing_is_left(kubectl, release)
