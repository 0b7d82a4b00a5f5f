"""The Job of an uninstall works with exactly the chart's rights, while the chart's policies apply."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from orion.crds.claims import ClaimShape
from orion.crds.policy import Priority
from testbed import helm
from tests.chart import rendered_chart as chart
from tests.cluster import api_types
from tests.cluster.audited_plane import AuditedPlane, audited_plane, granted
from tests.cluster.conftest import client_for
from tests.cluster.operator_process import apply
from tests.cluster.rights import bind
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

FILES = helm.CHART / "files"
ROLE = FILES / "cleanup-role.yaml"
USER = "system:serviceaccount:default:orion-cleanup"
GROUP, VERSION, GPU, TEST = "orion.gpu", "v1alpha1", "gpu-00000000-0000-4000-8000-000000000000", "orion-test-slot"
ASKED_BY_POLICY = {(GROUP, "gpudevices", "release")}
CLAIM = ClaimShape(priority=Priority.BE, gpus={"main": 1})
TAINT = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
LABELS = {"orion.gpu/gpus": "1", "orion.gpu/mode": "timeslice", "orion/enabled": "true"}


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[AuditedPlane]:
    """A cluster with the objects that Orion leaves, and with its policies, which may apply for a moment longer."""
    with audited_plane(USER, tmp_path) as plane:
        api_types.establish(plane.api)
        for path in FILES.glob("*-policy.yaml"):
            apply(plane.plane.access.kubeconfig, path)
        apply(plane.plane.access.kubeconfig, own_policy(tmp_path))
        bind(plane.api, ROLE, USER, "default")
        make_what_orion_leaves(plane.api)
        until_policies_apply(plane.api)
        yield plane


def own_policy(folder: Path) -> Path:
    """Write the policy that the chart derives from the operator's policy for the Job, in this test's namespace."""
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    found = [chart.one(chart.objects(), kind, "orion-cleanup-labels-nodes") for kind in kinds]
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump_all(found).replace(f":{chart.NAMESPACE}:", ":default:"))
    return path


def make_what_orion_leaves(api: client.ApiClient) -> None:
    """Make a node, a GPU, a share and a finished test pod as Orion leaves them."""
    objects, core = client.CustomObjectsApi(api), client.CoreV1Api(api)
    core.create_node({"metadata": {"name": "node", "labels": LABELS}})
    gone = {"orion.gpu/hp": "0", "cpu": "4"}
    core.patch_node_status("node", {"status": {"capacity": gone, "allocatable": gone}})
    meta = {"apiVersion": f"{GROUP}/{VERSION}"}
    device = {**meta, "kind": "GPUDevice", "metadata": {"name": GPU}, "spec": {"cordon": True}}
    objects.create_cluster_custom_object(GROUP, VERSION, "gpudevices", device)
    status = {"status": {"node": "node", "health": "Healthy", "clientCount": 2}}
    objects.patch_cluster_custom_object_status(GROUP, VERSION, "gpudevices", GPU, status)
    for name in ("mild", TEST):
        share = {**meta, "kind": "GPUShare", "metadata": {"name": name}, "spec": {"priority": "be"}}
        objects.create_namespaced_custom_object(GROUP, VERSION, "default", "gpushares", share)
    pods = {"status": {"pods": {"governed": 1}}}
    objects.patch_namespaced_custom_object_status(GROUP, VERSION, "default", "gpushares", "mild", pods)
    template = ("resource.k8s.io", "v1", "default", "resourceclaimtemplates", CLAIM.template())
    objects.create_namespaced_custom_object(*template)
    spec = {"containers": [{"name": "tenant", "image": "none"}]}
    core.create_namespaced_pod("default", {"metadata": {"name": TEST}, "spec": spec})


def until_policies_apply(api: client.ApiClient) -> None:
    """Wait until the policy refuses what RBAC alone would allow: to write a GPU's health, and to taint a node."""
    cleanup_user = client.ApiClient(api.configuration, "Impersonate-User", USER)
    objects, core = client.CustomObjectsApi(cleanup_user), client.CoreV1Api(cleanup_user)
    status: dict[str, Any] = {"status": {"index": 1}}

    def refused(why: str, call: Callable[..., object], *arguments: object) -> bool:
        try:
            call(*arguments, dry_run="All")
        except client.ApiException as refusal:
            return why in refusal.body
        return False

    of_gpu = (objects.patch_cluster_custom_object_status, GROUP, VERSION, "gpudevices", GPU, status)
    # The agents' and the operator's policy refuse this; the API server reports one of them.
    eventually(lambda: refused("names no node", *of_gpu) or refused("only set the health", *of_gpu))
    eventually(lambda: refused("only the labels orion.gpu/... of a node", core.patch_node, "node", TAINT))


def cleanup(kubeconfig: Path, *options: str) -> dict[str, Any]:
    """Run the command as the Job does, and return its output."""
    command = [sys.executable, "-m", "orion.cli", "cleanup", "--kubeconfig", str(kubeconfig), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout, done.stderr
    output: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if output["failed"] else 0)
    return output


def test_every_right_is_used_and_none_is_missing(audited: AuditedPlane) -> None:
    output = cleanup(audited.kubeconfig, f"--test=default/{TEST}")
    assert output == {
        "dryRun": False,
        "nodes": {"node": ["orion.gpu/gpus", "orion.gpu/mode"]},
        "gpus": [GPU],
        "shares": ["default/mild"],
        "deleted": [f"pods/{TEST}", f"gpushares/{TEST}", f"resourceclaimtemplates/{CLAIM.template_name}"],
        "failed": [],
    }
    objects = client.CustomObjectsApi(audited.api)
    device: Any = objects.get_cluster_custom_object(GROUP, VERSION, "gpudevices", GPU)
    assert (device["spec"]["cordon"], device["status"]["health"], device["status"]["node"]) == (True, "Unknown", "node")
    left = client.CoreV1Api(audited.api).read_node("node").metadata.labels
    assert {name for name in left if "orion" in name} == {"orion/enabled"}
    eventually(lambda: audited.asked() | ASKED_BY_POLICY == granted(ROLE), what=f"{audited.asked()}")
    assert not [line for line in audited.refused() if "impersonatedUser" not in line]


def test_empty_resources_are_removed_by_users_who_may_write_node_statuses(audited: AuditedPlane) -> None:
    (refusal,) = cleanup(audited.kubeconfig, "--capacity")["failed"]
    assert 'cannot patch resource "nodes/status"' in refusal
    assert cleanup(audited.plane.access.kubeconfig, "--capacity")["nodes"] == {"node": ["orion.gpu/hp"]}
    assert client.CoreV1Api(audited.api).read_node("node").status.capacity == {"cpu": "4"}


def test_forbidden_requests_are_refused(audited: AuditedPlane) -> None:
    with client_for(audited.kubeconfig) as job:
        core, objects = client.CoreV1Api(job), client.CustomObjectsApi(job)
        forbidden: list[tuple[Callable[..., object], tuple[object, ...]]] = [
            (core.list_secret_for_all_namespaces, ()),
            (core.list_pod_for_all_namespaces, ()),
            (core.delete_namespaced_pod, ("another", "default")),
            (core.delete_namespaced_pod, (TEST, "kube-system")),
            (core.patch_node_status, ("node", {"status": {"capacity": {"cpu": "1"}}})),
            (core.delete_node, ("node",)),
            (core.patch_node, ("node", TAINT)),
            (core.patch_node, ("node", {"spec": {"unschedulable": True}})),
            (core.patch_node, ("node", {"metadata": {"labels": {"orion/enabled": None}}})),
            (objects.patch_cluster_custom_object, (GROUP, VERSION, "gpudevices", GPU, {"spec": {"cordon": False}})),
            (objects.delete_cluster_custom_object, (GROUP, VERSION, "gpudevices", GPU)),
            # While the policy applies, the Job may only release GPUs, although RBAC lets it write their statuses.
            (
                objects.patch_cluster_custom_object_status,
                (GROUP, VERSION, "gpudevices", GPU, {"status": {"health": "Unhealthy"}}),
            ),
        ]
        for call, arguments in forbidden:
            with pytest.raises(client.ApiException) as refusal:
                call(*arguments)
            assert refusal.value.status == 403, call
