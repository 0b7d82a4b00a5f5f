"""The chart on a real cluster through a release's life: rejected, installed, upgraded, rolled back, removed, restored.

The tests run in this order and depend on each other: each finds the release in the state that the previous one left.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes import client

from testbed.access import Access
from testbed.cluster import Cluster
from testbed.errors import Failed
from testbed.node import Node
from testbed.release import RESOURCES, Release
from tests.chart.on_cluster.computing_tenants import REPORT, ComputingTenants
from tests.chart.on_cluster.conftest import NEWER, equip
from tests.chart.on_cluster.remains import marks_of_nodes, nothing_is_claimed, nothing_is_left
from tests.cluster.conftest import Kubectl
from tests.node.another_plugin import RESOURCE as ANOTHER
from tests.node.another_plugin import AnotherPlugin
from tests.node.gpu_tenants import EXAMPLES, GpuNode, Tenants, training
from tests.node.running_pod import RunningPod
from tests.waiting import eventually

pytestmark = pytest.mark.node

SIMULATED = {"simulatedGPUs": 2, "webhook.terminationGracePeriodSeconds": 30}
""" A webhook's pod ends within 30 s, even if an API server still has connections to it. """
PATIENT = {"node.agent.recoverySeconds": 1, "node.agent.extraArgs[0]": "--claim-seconds=1"}
""" Shorter than the defaults (10 s, 60 s), so that Orion soon advertises a GPU that another plugin releases. """
WAITING = {"webhook.timeoutSeconds": 30}
""" The longest that an API server waits for the webhook, so that a busy machine refuses no pod. """
VALUES = {**SIMULATED, **PATIENT, **WAITING, "mps.enabled": True}
SLOTS = dict(zip(RESOURCES, (2, 16), strict=True))
PROFILE = """
apiVersion: orion.gpu/v1alpha1
kind: GPUProfile
metadata: {name: serve}
spec: {gpu: {model: NVIDIA H200}, source: {kind: cupti}, kernels: []}
"""
INSTALL_SECONDS = 600.0
""" Ten times the 60 s that an installation may take. """
RETURN_SECONDS = 20.0
""" Ten times the time that a process needs to join a new agent. """
ELSEWHERE = "gpu-00000000-0000-4000-8000-000000000000"
MANIFESTS = [f"--filename={EXAMPLES / name}" for name in ("gpushare.yaml", "serve.yaml", "train.yaml")]
KINDS = ("gpushares", "gpudevices", "gpuprofiles")


@pytest.fixture(scope="module")
def tenants(api: client.ApiClient, gpus: GpuNode) -> ComputingTenants:
    """The pods that compute from the first installation to the last test."""
    return ComputingTenants(Tenants(api, "tenants"), gpus)


@pytest.fixture(scope="module", autouse=True)
def seconds() -> Iterator[dict[str, float]]:
    """The duration of each step; printed at the end."""
    measured: dict[str, float] = {}
    yield measured
    print("\nchart:", ", ".join(f"{what} {taken:.1f} s" for what, taken in measured.items()))


# -- Refused installations, which leave nothing behind -----------------------------------------------------------------


def test_a_user_without_rights_learns_which_right_is_missing(
    release: Release, control_plane: Access, tmp_path: Path
) -> None:
    somebody = control_plane.kubeconfig_for("somebody", [], tmp_path / "kubeconfig")
    with pytest.raises(Failed, match=r'"somebody" cannot \w+ resource "\w+" in API group'):
        Release(control_plane, kubeconfig=somebody).install(SIMULATED)


def test_a_user_with_rights_in_one_namespace_learns_what_is_missing(
    control_plane: Access, kubectl: Kubectl, tmp_path: Path
) -> None:
    kubectl("create", "namespace", "theirs")
    kubectl("create", "rolebinding", "admin", "--clusterrole=admin", "--user=somebody", "--namespace=theirs")
    somebody = control_plane.kubeconfig_for("somebody", [], tmp_path / "kubeconfig")
    with pytest.raises(Failed, match=r'"somebody" cannot \w+ resource "\w+" in API group'):
        Release(control_plane, namespace="theirs", kubeconfig=somebody).install(SIMULATED)
    assert kubectl("get", "all", "--namespace=theirs", "--output=name") == ""


def test_without_the_api_types_the_error_names_the_command(release: Release, kubectl: Kubectl) -> None:
    kubectl("delete", "crd", *(f"{kind}.orion.gpu" for kind in KINDS), "--ignore-not-found")  # of an earlier release
    with pytest.raises(Failed, match=r"crds\.install=false, but the cluster does not have"):
        release.install({**SIMULATED, "crds.install": False})
    assert "orion" not in kubectl("get", "clusterroles,mutatingwebhookconfigurations", "--output=name")


# -- Installed ---------------------------------------------------------------------------------------------------------


def test_after_the_installation_all_pods_get_ready(release: Release, node: Node, seconds: dict[str, float]) -> None:
    seconds["install"] = release.install(VALUES)
    assert seconds["install"] <= INSTALL_SECONDS
    eventually(lambda: release.allocatable(node.name) == SLOTS)


def test_helm_test_succeeds(release: Release) -> None:
    said = release.test()
    assert "Succeeded" in said
    assert "the hook is loaded, the agent answers" in said


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("orion", "cannot re-use a name that is still in use"), ("another", "Orion is already installed here")],
)
def test_a_second_release_is_rejected(control_plane: Access, name: str, sentence: str) -> None:
    with pytest.raises(Failed, match=sentence):
        Release(control_plane, name=name).install(SIMULATED)


def test_the_examples_run_on_the_release(api: client.ApiClient, gpus: GpuNode, kubectl: Kubectl) -> None:
    kubectl("apply", *MANIFESTS, "--namespace=default")
    examples = Tenants(api, "default")
    for app, priority in (("serve", "hp"), ("train", "be")):
        (pod,) = eventually(lambda app=app: examples.pods(app).values())  # type: ignore[misc]
        assert RunningPod.of(gpus, pod).joined_client().slot.startswith(priority)
    kubectl("wait", "gpushare/serve", "gpushare/train", "--for=condition=HookInjected", "--timeout=60s")
    kubectl("delete", *MANIFESTS, "--namespace=default")


def test_slots_of_a_gpu_that_another_plugin_advertises_are_withdrawn(
    release: Release, node: Node, gpus: GpuNode
) -> None:
    (uuid, *_) = gpus.devices()
    with AnotherPlugin(node, [uuid]):
        eventually(lambda: release.allocatable(node.name) == {name: count // 2 for name, count in SLOTS.items()})
        eventually(lambda: ANOTHER in gpus.condition(uuid, "Ready")["message"])
    eventually(lambda: release.allocatable(node.name) == SLOTS)


def test_tenants_start_and_compute(tenants: ComputingTenants) -> None:
    tenants.begin()


# -- Disturbed ---------------------------------------------------------------------------------------------------------


def test_tenants_are_undisturbed_when_operators_and_a_webhook_end(
    tenants: ComputingTenants, release: Release, kubectl: Kubectl
) -> None:
    def named(component: str) -> list[str]:
        selector = f"--selector=app.kubernetes.io/component={component}"
        return kubectl("get", "pods", selector, f"--namespace={release.namespace}", "--output=name").split()

    with tenants.watched() as seen:
        ended = [*named("operator"), named("webhook")[0]]
        kubectl("delete", *ended, f"--namespace={release.namespace}", seconds=120)
        eventually(release.ready)
    assert (seen.changed, seen.refusals, seen.unanswered) == ([], [], 0)


def test_pods_run_on_a_second_node_and_each_agent_reports_its_own_gpus(
    cluster: Cluster, release: Release, api: client.ApiClient, images: dict[str, Path], kubectl: Kubectl
) -> None:
    second = cluster.add_node("node-2")
    equip(second, {"": images[""]})
    try:
        eventually(lambda: release.allocatable(second.name) == SLOTS, seconds=INSTALL_SECONDS)
        there, here = GpuNode(second, api), GpuNode(cluster.nodes["node-1"], api)
        assert len(there.devices()) == len(here.devices()) == SIMULATED["simulatedGPUs"]
        assert not there.devices().keys() & here.devices().keys()
        pods = Tenants(api, "default")
        pod = training("second")
        pods.create({**pod, "spec": {**pod["spec"], "nodeSelector": {"kubernetes.io/hostname": second.name}}})
        assert RunningPod.of(there, pods.pods()["second"]).joined_client().gpu in there.devices()
    finally:
        cluster.remove_node(second.name)
        kubectl("delete", "node", second.name)
        # The node is gone, so no kubelet confirms that its pods have ended.
        for namespace in ("default", release.namespace):
            of_node = f"--field-selector=spec.nodeName={second.name}"
            kubectl("delete", "pods", of_node, f"--namespace={namespace}", "--force", "--grace-period=0")


def test_a_namespace_is_deleted_with_its_contents(kubectl: Kubectl) -> None:
    fill_and_delete_a_namespace(kubectl)


def fill_and_delete_a_namespace(kubectl: Kubectl) -> None:
    """Create shares, pods and a profile; delete some one by one and the rest with the namespace. Nothing may hang."""
    kubectl("create", "namespace", "passing")
    kubectl("apply", *MANIFESTS, "--namespace=passing")
    kubectl("apply", "--filename=-", "--namespace=passing", given=PROFILE)
    kubectl("delete", "gpushare/serve", "deployment/serve", "--namespace=passing", "--timeout=60s", seconds=90)
    kubectl("delete", "namespace", "passing", "--timeout=60s", seconds=90)


# -- Upgraded, and back ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def columns_are_back(kubectl: Kubectl) -> Callable[[], bool]:
    """Remove the columns of a definition, as if a newer release added them; return a check that they are back."""
    kubectl(
        "patch", "crd", "gpushares.orion.gpu", "--type=json",
        '--patch=[{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns"}]',
    )  # fmt: skip

    def there() -> bool:
        return "PRIORITY" in kubectl("get", "gpushares", "--all-namespaces")

    return there


def test_tenants_stay_managed_and_pods_are_admitted_through_an_upgrade(
    tenants: ComputingTenants,
    release: Release,
    seconds: dict[str, float],
    columns_are_back: Callable[[], bool],
    gpus: GpuNode,
) -> None:
    """Upgrade to another version of the hook and of the layout of the pages that agent and hook share."""
    before, version, daemons = tenants.clients(), gpus.snapshot().agent_version, uids(release, "mps")
    assert daemons
    with tenants.watched() as seen:
        seconds["upgrade"] = release.upgrade({**VALUES, "image.tag": NEWER})
        undisturbed(tenants)
    assert (seen.changed, seen.refusals) == ([], [])
    assert seen.returning_seconds <= RETURN_SECONDS
    assert tenants.clients() == before
    assert gpus.snapshot().agent_version != version
    assert uids(release, "mps") == daemons
    assert columns_are_back()
    tenants.join(training("newcomer", **REPORT))


def test_tenants_stay_managed_and_pods_are_admitted_through_a_rollback(
    tenants: ComputingTenants, release: Release, seconds: dict[str, float]
) -> None:
    """Tenants with the newer layout stay managed, too."""
    before = tenants.clients()
    with tenants.watched() as seen:
        seconds["rollback"] = release.rollback()
        undisturbed(tenants)
    assert (seen.changed, seen.refusals) == ([], [])
    assert seen.returning_seconds <= RETURN_SECONDS
    assert tenants.clients() == before


def uids(release: Release, component: str) -> set[str]:
    """Return the uids of a component's pods."""
    return {
        pod["metadata"]["uid"]
        for pod in release.pods()
        if pod["metadata"]["labels"].get("app.kubernetes.io/component") == component
    }


def undisturbed(tenants: ComputingTenants) -> None:
    """Return when all tenants have joined the present agent and compute; fail if one has failed."""
    tenants.clients()
    tenants.compute()
    assert (tenants.restarts(), tenants.failures()) == (0, [])


# -- Removed, and back again -------------------------------------------------------------------------------------------


def test_an_uninstall_keeps_the_api_types_and_objects_and_tenants_compute_on(
    tenants: ComputingTenants, release: Release, kubectl: Kubectl, node: Node, seconds: dict[str, float]
) -> None:
    create_another_node(kubectl)
    seconds["uninstall"] = release.uninstall()
    nothing_is_left(kubectl, release)
    nothing_is_claimed(kubectl)
    kubectl("delete", "node/elsewhere", f"gpudevice/{ELSEWHERE}")
    assert kubectl("get", "gpushares", "--namespace=tenants", "--output=name").split() == [
        "gpushare.orion.gpu/serve",
        "gpushare.orion.gpu/train",
    ]
    eventually(lambda: not any(release.allocatable(node.name).values()))
    tenants.compute()
    assert (tenants.restarts(), tenants.failures()) == (0, [])


def create_another_node(kubectl: Kubectl) -> None:
    """Create a node without a kubelet, and a GPUDevice of it; return when the operator has labelled the node."""
    kubectl(
        "create",
        "--filename=-",
        given=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "elsewhere"}}),
    )
    device = {"apiVersion": "orion.gpu/v1alpha1", "kind": "GPUDevice", "metadata": {"name": ELSEWHERE}}
    kubectl("create", "--filename=-", given=json.dumps(device))
    status = json.dumps({"status": {"node": "elsewhere", "health": "Healthy", "clientCount": 1}})
    kubectl("patch", "gpudevice", ELSEWHERE, "--subresource=status", "--type=merge", f"--patch={status}")
    eventually(
        lambda: {mark.partition(":")[0] for mark in marks_of_nodes(kubectl)} == {"node/elsewhere", "node/node-1"}
    )


def test_without_an_operator_a_namespace_is_deleted_too(kubectl: Kubectl) -> None:
    fill_and_delete_a_namespace(kubectl)


def test_after_a_new_installation_the_tenants_are_managed_again(
    tenants: ComputingTenants, release: Release, node: Node, seconds: dict[str, float]
) -> None:
    seconds["install again"] = release.install({**VALUES, "crds.keep": False})
    eventually(lambda: release.allocatable(node.name) == SLOTS)
    undisturbed(tenants)
    tenants.tenants.delete(*tenants.pods)


def test_an_uninstall_with_the_api_types_leaves_nothing(release: Release, kubectl: Kubectl) -> None:
    release.uninstall()
    nothing_is_left(kubectl, release)
    definitions = kubectl("get", "crds", "--output=name")
    assert [kind for kind in KINDS if f"{kind}.orion.gpu" in definitions] == []
    for namespace in ("tenants", "theirs", release.namespace):
        kubectl("delete", "namespace", namespace, "--timeout=60s", seconds=90)
