"""Admission on a real API server: what pods become, what is refused, and what nobody can change afterwards."""

import functools
import json
import re
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from orion.crds.annotations import read_grant
from orion.operator.webhook import manifests
from orion.operator.webhook.defaults import Defaults
from tests.cluster import api_types, running_webhook
from tests.cluster.conftest import Kubectl, client_for
from tests.cluster.running_webhook import LABEL, RunningWebhook
from tests.cluster.waiting import eventually
from tools.cluster.access import Access

pytestmark = pytest.mark.cluster

HOOK = Defaults().hook
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def webhook(api: client.ApiClient, control_plane: Access) -> Iterator[RunningWebhook]:
    """The webhook of this worker."""
    api_types.establish(api)
    with tempfile.TemporaryDirectory(prefix="orion-webhook-") as folder:
        name = f"orion-test-{uuid.uuid4().hex[:10]}"
        with running_webhook.running(api, control_plane, Path(folder), name) as running:
            yield running


@pytest.fixture
def admitted(api: client.ApiClient, namespace: str, webhook: RunningWebhook) -> str:
    """A namespace whose pods the webhook sees, once the API server knows that."""
    core = client.CoreV1Api(api)
    core.patch_namespace(namespace, {"metadata": {"labels": {LABEL: webhook.name}}})
    forged = pod("probe", annotations={"orion/grant": "{}"})
    eventually(lambda: "Orion's webhook only" in refusal(api, namespace, forged))
    unknown = pod("probe", "nonsense")
    eventually(lambda: "must be hp or be" in refusal(api, namespace, unknown))
    return namespace


def pod(name: str, priority: str | None = None, **changes: Any) -> dict[str, Any]:
    """Return a pod with one container that asks for one GPU, changed by dotted paths of its spec."""
    annotations = changes.pop("annotations", {}) | ({"orion/priority": priority} if priority else {})
    container = {"name": "main", "image": "localhost/none:1", **changes.pop("container", {})}
    if priority is not None:
        container.setdefault("resources", {"limits": {"nvidia.com/gpu": "1"}})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations, "labels": changes.pop("labels", {})},
        "spec": {"containers": [container], **changes},
    }


def share(name: str, priority: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "orion.gpu/v1alpha1",
        "kind": "GPUShare",
        "metadata": {"name": name},
        "spec": {"priority": priority, **spec},
    }


def refusal(api: client.ApiClient, namespace: str, made: dict[str, Any]) -> str:
    """Return the sentence that a pod is refused with; empty: it is not."""
    try:
        client.CoreV1Api(api).create_namespaced_pod(namespace, made, dry_run="All")
    except client.ApiException as error:
        return str(json.loads(error.body)["message"])
    return ""


def pods_of(kubectl: Kubectl, namespace: str, selector: str) -> list[dict[str, Any]]:
    found = json.loads(kubectl("get", "pods", "-n", namespace, "-l", selector, "-o", "json"))
    return list(found["items"])


def assert_has_slot(made: dict[str, Any], priority: str, amount: int = 1) -> None:
    container = made["spec"]["containers"][0]
    slots = {f"orion.gpu/{priority}": str(amount)}
    assert container["resources"]["limits"] == container["resources"]["requests"] == slots
    assert {"name": "LD_PRELOAD", "value": HOOK} in container["env"]
    grant = read_grant(made["metadata"]["annotations"])
    assert grant is not None
    assert grant.priority == priority
    assert grant.containers["main"].slots == amount


# -- What pods become --------------------------------------------------------------------------------------------------


def test_a_pod_gets_slots_and_the_hook(api: client.ApiClient, admitted: str) -> None:
    given = pod("one", "hp", container={"resources": {"limits": {"nvidia.com/gpu": "2"}}})
    made = client.CoreV1Api(api).create_namespaced_pod(admitted, given, _preload_content=False)
    assert_has_slot(json.loads(made.data), "hp", 2)


def test_a_pod_that_does_not_concern_orion_is_left_alone(api: client.ApiClient, admitted: str) -> None:
    given = pod("plain", container={"resources": {"limits": {"nvidia.com/gpu": "1"}}}, hostPID=True)
    made = json.loads(client.CoreV1Api(api).create_namespaced_pod(admitted, given, _preload_content=False).data)
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert "orion/grant" not in made["metadata"].get("annotations", {})


TEMPLATE = {
    "metadata": {"labels": {"app": "made"}, "annotations": {"orion/priority": "be"}},
    "spec": {
        "containers": [{"name": "main", "image": "localhost/none:1", "resources": {"limits": {"orion.gpu/be": 1}}}]
    },
}
SELECTOR = {"matchLabels": {"app": "made"}}


@pytest.mark.parametrize(
    ("group", "kind", "spec"),
    [
        ("apps/v1", "Deployment", {"replicas": 2, "selector": SELECTOR}),
        ("apps/v1", "StatefulSet", {"replicas": 1, "selector": SELECTOR, "serviceName": "none"}),
        ("batch/v1", "Job", {}),
    ],
    ids=["Deployment", "StatefulSet", "Job"],
)
def test_pods_of_controllers(kubectl: Kubectl, admitted: str, group: str, kind: str, spec: dict[str, Any]) -> None:
    template: dict[str, Any] = json.loads(json.dumps(TEMPLATE))
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
    made = {"apiVersion": group, "kind": kind, "metadata": {"name": "made"}, "spec": {**spec, "template": template}}
    kubectl("apply", "-n", admitted, "-f", "-", given=made)
    found = eventually(lambda: pods_of(kubectl, admitted, "app=made"))
    for each in found:
        assert_has_slot(each, "be")


@pytest.mark.parametrize("example", ["hp-pod.yaml", "be-job.yaml"])
def test_the_examples_are_admitted(kubectl: Kubectl, admitted: str, example: str) -> None:
    kubectl("apply", "-n", admitted, "-f", ROOT / "examples" / example)


def test_a_dry_run_shows_the_same_and_makes_nothing(kubectl: Kubectl, admitted: str) -> None:
    shown = kubectl("apply", "-n", admitted, "--dry-run=server", "-o", "json", "-f", "-", given=pod("dry", "be"))
    assert_has_slot(json.loads(shown), "be")
    assert pods_of(kubectl, admitted, "") == []


def test_a_share_governs_the_pods_that_it_selects(kubectl: Kubectl, admitted: str) -> None:
    made = share("chat", "hp", selector={"matchLabels": {"app": "chat"}}, memory={"limit": "8Gi"}, failClosed=True)
    kubectl("create", "-n", admitted, "-f", "-", given=made)

    def governed() -> bool:
        shown = kubectl(
            "create", "-n", admitted, "--dry-run=server", "-o", "json", "-f", "-",
            given=pod("chat", "hp", labels={"app": "chat"}),
        )  # fmt: skip
        grant = read_grant(json.loads(shown)["metadata"]["annotations"])
        assert grant is not None
        return grant.share == "chat" and grant.fail_closed and grant.containers["main"].memory_limit_bytes == 8 * 2**30

    eventually(governed)


def test_a_share_and_a_pod_that_are_applied_together(kubectl: Kubectl, admitted: str, webhook: RunningWebhook) -> None:
    for turn in range(10):
        name = f"together-{turn}"
        both = [share(name, "be", weight=2), pod(name, "be", annotations={"orion/share": name})]
        kubectl("apply", "-n", admitted, "-f", "-", given="\n---\n".join(map(json.dumps, both)))
    assert "orion_webhook_second_looks_total" in webhook.read("metrics")


def test_another_webhook_between_is_followed_by_a_second_invocation(kubectl: Kubectl, admitted: str) -> None:
    first = json.loads(kubectl("create", "-n", admitted, "-o", "json", "-f", "-", given=pod("first", "be")))
    again = {key: first["metadata"][key] for key in ("annotations",)} | {"name": "again"}
    spec = {key: first["spec"][key] for key in ("containers",)}
    second = {"apiVersion": "v1", "kind": "Pod", "metadata": again, "spec": spec}
    made = json.loads(kubectl("create", "-n", admitted, "-o", "json", "-f", "-", given=second))
    assert made["spec"]["containers"][0]["env"] == first["spec"]["containers"][0]["env"]
    assert_has_slot(made, "be")


# -- What is refused ---------------------------------------------------------------------------------------------------

HP = {"resources": {"limits": {"orion.gpu/hp": "1"}}}
REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown priority": (pod("x", "high"), "orion/priority must be hp or be"),
    "share that is not there": (pod("x", "hp", annotations={"orion/share": "gone"}), "gone, which does not exist"),
    "hp and be in one container": (
        pod("x", container={"resources": {"limits": {"orion.gpu/hp": "1", "orion.gpu/be": "1"}}}),
        "either hp or be",
    ),
    "annotation and resource": (pod("x", "be", container=HP), "orion/priority says be, but container main asks"),
    "a kind that there is not": (
        pod("x", container={"resources": {"limits": {"orion.gpu/gold": "1"}}}),
        "orion.gpu/gold, which does not exist",
    ),
    "two kinds": (
        pod("x", container={"resources": {"limits": {"orion.gpu/hp": "1", "nvidia.com/gpu": "1"}}}),
        "a slot is already a seat on a GPU",
    ),
    "privileged": (pod("x", "hp", container={"securityContext": {"privileged": True}}), "main is privileged"),
    "hostPID": (pod("x", "hp", hostPID=True), "hostPID"),
    "hostPath of devices": (
        pod("x", "hp", volumes=[{"name": "v", "hostPath": {"path": "/dev/nvidia0"}}]),
        "volume v is the node's /dev/nvidia0",
    ),
    "hostPath of the kubelet": (
        pod("x", "hp", volumes=[{"name": "v", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]),
        "the kubelet's sockets",
    ),
    "hostPath of slots": (pod("x", "hp", volumes=[{"name": "v", "hostPath": {"path": "/var/run/orion"}}]), "the slots"),
    "device variable": (
        pod("x", "hp", container={"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}),
        "sets NVIDIA_VISIBLE_DEVICES",
    ),
    "audit library": (pod("x", "hp", container={"env": [{"name": "LD_AUDIT", "value": "/a.so"}]}), "sets LD_AUDIT"),
    "another root": (pod("x", "hp", container={"env": [{"name": "ORION_ROOT", "value": "/t"}]}), "sets ORION_ROOT"),
    "preload from elsewhere": (
        pod("x", "hp", container={"env": [{
            "name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]}),
        "takes LD_PRELOAD from somewhere else",
    ),
    "mount over slots": (
        pod("x", "hp", volumes=[{"name": "v", "emptyDir": {}}],
            container={"volumeMounts": [{"name": "v", "mountPath": "/run/orion/lib"}]}),
        "where its slots are",
    ),
    "greedy init container": (
        pod("x", "hp", initContainers=[{
            "name": "i", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]),
        "init container i asks for 2 slots",
    ),
    "annotation of no container": (
        pod("x", "hp", annotations={"orion/containers": "other"}), "names 'other'; the pod's containers are main",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_work_is_refused_with_a_sentence(kubectl: Kubectl, admitted: str, case: str) -> None:
    given, sentence = REFUSALS[case]
    with pytest.raises(subprocess.CalledProcessError) as refused:
        kubectl("create", "-n", admitted, "-f", "-", given=given)
    assert sentence in refused.value.stderr
    assert "pods.webhook.orion.gpu" in refused.value.stderr


def test_shares_that_contradict_or_overlap_are_named(api: client.ApiClient, kubectl: Kubectl, admitted: str) -> None:
    selector = {"matchLabels": {"app": "chat"}}
    for name in ("blue", "green"):
        kubectl("create", "-n", admitted, "-f", "-", given=share(name, "be", selector=selector))
    eventually(lambda: "blue and green all select" in refusal(api, admitted, pod("x", "be", labels={"app": "chat"})))
    named = pod("x", "hp", annotations={"orion/share": "blue"})
    assert "orion/priority says hp, but GPUShare blue has spec.priority be" in refusal(api, admitted, named)


def test_memory_that_no_gpu_has_is_refused(api: client.ApiClient, kubectl: Kubectl, admitted: str) -> None:
    device = {
        "apiVersion": "orion.gpu/v1alpha1", "kind": "GPUDevice",
        "metadata": {"name": f"gpu-{uuid.uuid4()}"}, "spec": {},
    }  # fmt: skip
    name = device["metadata"]["name"]  # type: ignore[index]
    kubectl("create", "-f", "-", given=device)
    try:
        status = json.dumps({"status": {"memory": {"total": "80Gi"}}})
        kubectl("patch", "gpudevice", name, "--subresource=status", "--type=merge", "-p", status)
        kubectl("create", "-n", admitted, "-f", "-", given=share("huge", "be", memory={"limit": "15Ti"}))
        named = pod("x", "be", annotations={"orion/share": "huge"})
        eventually(lambda: re.search(r"memory.limit of 15Ti.*largest GPU", refusal(api, admitted, named)))
    finally:
        kubectl("delete", "gpudevice", name)


# -- What nobody can change afterwards ---------------------------------------------------------------------------------


@pytest.fixture
def tenant(
    api: client.ApiClient, admitted: str, kubeconfig_for: Callable[..., Path]
) -> Iterator[client.CoreV1Api]:  # fmt: skip
    """Somebody who may do everything in the namespace, and nothing outside."""
    user = f"system:serviceaccount:{admitted}:tenant"
    authorization = client.RbacAuthorizationV1Api(api)
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    authorization.create_namespaced_role(admitted, {"metadata": {"name": "everything"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "everything"}
    subjects = [{"kind": "ServiceAccount", "name": "tenant", "namespace": admitted}]
    authorization.create_namespaced_role_binding(
        admitted, {"metadata": {"name": "everything"}, "roleRef": reference, "subjects": subjects}
    )
    with client_for(kubeconfig_for(user)) as speaking:
        core = client.CoreV1Api(speaking)
        eventually(functools.partial(_may_list, core, admitted))
        yield core


def _may_list(core: client.CoreV1Api, namespace: str) -> bool:
    try:
        core.list_namespaced_pod(namespace)
    except client.ApiException:
        return False
    return True


def _patched(change: Callable[..., Any], namespace: str, annotations: dict[str, str | None]) -> str:
    try:
        change("mine", namespace, {"metadata": {"annotations": annotations}})
    except client.ApiException as error:
        return str(json.loads(error.body)["message"])
    return ""


def test_a_tenant_cannot_raise_a_grant_or_change_a_priority(admitted: str, tenant: client.CoreV1Api) -> None:
    tenant.create_namespaced_pod(admitted, pod("mine", "be"))
    for change in (tenant.patch_namespaced_pod, tenant.patch_namespaced_pod_status):
        assert "changed by Orion's operator only" in _patched(change, admitted, {"orion/grant": "{}"})
        assert "changed by Orion's operator only" in _patched(change, admitted, {"orion/grant": None})
        assert "cannot be changed once it exists" in _patched(change, admitted, {"orion/priority": "hp"})
        assert "cannot be changed once it exists" in _patched(change, admitted, {"orion/priority": None})
        assert "cannot be changed once it exists" in _patched(change, admitted, {"orion/share": "other"})
        assert _patched(change, admitted, {"their.own/word": "fine"}) == ""


def test_a_tenant_cannot_bring_marks_by_a_binding(
    api: client.ApiClient, admitted: str, tenant: client.CoreV1Api
) -> None:
    tenant.create_namespaced_pod(admitted, pod("mine", "be"))
    binding = {
        "metadata": {"name": "mine", "annotations": {"orion/grant": "{}"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "none"},
    }
    with pytest.raises(client.ApiException) as refused:
        tenant.create_namespaced_pod_binding("mine", admitted, binding, _preload_content=False)
    assert "a Binding cannot give annotations" in str(refused.value.body)


def test_an_existing_pod_cannot_become_orions(admitted: str, tenant: client.CoreV1Api) -> None:
    tenant.create_namespaced_pod(admitted, pod("mine"))
    for name in ("orion/priority", "orion/share"):
        said = _patched(tenant.patch_namespaced_pod, admitted, {name: "hp"})
        assert "cannot be changed once it exists" in said


def test_who_may_update_grants_may_change_them(
    api: client.ApiClient, admitted: str, kubeconfig_for: Callable[..., Path], kubectl: Kubectl
) -> None:
    client.CoreV1Api(api).create_namespaced_pod(admitted, pod("mine", "be"))
    authorization = client.RbacAuthorizationV1Api(api)
    rules = [
        {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "patch"]},
        {"apiGroups": ["orion.gpu"], "resources": [manifests.GRANTS], "verbs": ["update"]},
    ]
    name = f"reconciler-of-{admitted}"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subjects = [{"kind": "ServiceAccount", "name": "reconciler", "namespace": admitted}]
    authorization.create_cluster_role({"metadata": {"name": name}, "rules": rules})
    authorization.create_cluster_role_binding({"metadata": {"name": name}, "roleRef": reference, "subjects": subjects})
    try:
        with client_for(kubeconfig_for(f"system:serviceaccount:{admitted}:reconciler")) as speaking:
            status = client.CoreV1Api(speaking).patch_namespaced_pod_status
            eventually(lambda: _patched(status, admitted, {"orion/grant": "{}"}) == "")
            assert "cannot be changed" in _patched(status, admitted, {"orion/priority": "hp"})
    finally:
        authorization.delete_cluster_role_binding(name)
        authorization.delete_cluster_role(name)


EPHEMERAL = {"name": "look", "image": "localhost/none:1"}


@pytest.mark.parametrize(
    ("container", "sentence"),
    [
        ({**EPHEMERAL, "securityContext": {"privileged": True}}, "ephemeral container look is privileged"),
        ({**EPHEMERAL, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}, "sets NVIDIA_VISIBLE_DEVICES"),
        (EPHEMERAL, ""),
    ],
    ids=["privileged", "devices", "harmless"],
)
def test_ephemeral_containers(api: client.ApiClient, admitted: str, container: dict[str, Any], sentence: str) -> None:
    core = client.CoreV1Api(api)
    core.create_namespaced_pod(admitted, pod("mine", "be"))
    patch = {"spec": {"ephemeralContainers": [container]}}
    if not sentence:
        core.patch_namespaced_pod_ephemeralcontainers("mine", admitted, patch)
        return
    with pytest.raises(client.ApiException) as refused:
        core.patch_namespaced_pod_ephemeralcontainers("mine", admitted, patch)
    assert sentence in str(refused.value.body)


# -- When the webhook is not there -------------------------------------------------------------------------------------


def test_without_the_webhook_no_pod_gets_a_slot_and_others_come(
    api: client.ApiClient, control_plane: Access, namespace: str, tmp_path: Path
) -> None:
    api_types.establish(api)
    core, name = client.CoreV1Api(api), f"orion-{namespace}"
    for policy, sentence in (("Fail", "failed calling webhook"), ("Ignore", "has not been through Orion's webhook")):
        folder = tmp_path / policy
        folder.mkdir()
        with running_webhook.running(api, control_plane, folder, name, policy) as running:
            core.patch_namespace(namespace, {"metadata": {"labels": {LABEL: name}}})
            eventually(lambda: "must be hp or be" in refusal(api, namespace, pod("x", "nonsense")))
            eventually(
                lambda: "Orion's webhook only" in refusal(api, namespace, pod("x", annotations={"orion/grant": "{}"}))
            )
            assert running.stop() == 0
            assert sentence in refusal(api, namespace, pod("x", container=HP))
            assert refusal(api, namespace, pod("x")) == ""
            running.start()
            assert refusal(api, namespace, pod("x", "hp")) == ""


def test_the_files_of_the_chart_are_what_the_tests_apply(webhook: RunningWebhook) -> None:
    text = (ROOT / manifests.FILES / manifests.POLICIES_FILE).read_text()
    assert list(yaml.safe_load_all(text)) == manifests.policies(HOOK)
