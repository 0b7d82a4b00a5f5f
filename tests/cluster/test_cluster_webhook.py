"""Admission on a real API server: what pods become, and what is refused."""

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from orion.crds.annotations import read_grant
from orion.operator.webhook import manifests
from orion.operator.webhook.defaults import Defaults
from tests.cluster import api_types, running_webhook
from tests.cluster.admitted_pods import pod, refusal, share
from tests.cluster.conftest import Kubectl, client_for
from tests.cluster.running_webhook import LABEL, RunningWebhook
from tests.cluster.waiting import eventually
from tools.cluster.access import Access
from tools.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

HOOK = Defaults().hook
ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize(
    "example", ["gpushare.yaml", "serve.yaml", "train.yaml", "pytorch/hp-pod.yaml", "pytorch/be-job.yaml"]
)
def test_the_examples_are_admitted(kubectl: Kubectl, admitted: str, example: str) -> None:
    kubectl("apply", "-n", admitted, "-f", ROOT / "examples" / example)


def test_a_dry_run_shows_the_same_and_makes_nothing(kubectl: Kubectl, admitted: str) -> None:
    shown = kubectl("apply", "-n", admitted, "--dry-run=server", "-o", "json", "-f", "-", given=pod("dry", "be"))
    assert_has_slot(json.loads(shown), "be")
    assert pods_of(kubectl, admitted, "") == []


def test_a_pod_that_asks_for_slots_can_be_applied_again(kubectl: Kubectl, admitted: str) -> None:
    given = pod("again", "be", container={"resources": {"limits": {"orion.gpu/be": "1"}}})
    first, second = (
        json.loads(kubectl("apply", "-n", admitted, "-o", "json", "-f", "-", given=given)) for _ in range(2)
    )
    assert second["metadata"]["annotations"] == first["metadata"]["annotations"]
    assert_has_slot(second, "be")


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
    for container in first["spec"]["containers"]:
        del container["volumeMounts"]  # of the service account, under a name that the other pod lacks
    spec = {"containers": first["spec"]["containers"]}
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


# -- What comes later --------------------------------------------------------------------------------------------------


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


# -- People ------------------------------------------------------------------------------------------------------------


def test_orion_explains_a_pod_of_the_cluster(
    kubectl: Kubectl, admitted: str, kubeconfig_for: Callable[..., Path]
) -> None:  # fmt: skip
    kubectl("create", "-n", admitted, "-f", "-", given=share("train", "be", selector={}))
    kubectl("create", "-n", admitted, "-f", "-", given=pod("plain"))
    kubectl("create", "-n", admitted, "-f", "-", given=pod("mine", "be"))
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig_for("administrator", ["system:masters"]))}

    def explain(name: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "orion.cli", "explain", "pod", name, "-n", admitted, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        assert done.returncode == (1 if name == "gone" else 0), done.stderr
        return dict(json.loads(done.stdout)) if done.stdout else {"said": done.stderr}

    assert explain("plain")["reason"] == "NotOurs"
    # Made before or after the webhook saw the share: anew it would have that share's grant.
    assert explain("mine")["share"] == "train"
    assert f"pod gone in namespace {admitted} cannot be read" in explain("gone")["said"]


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
            assert (sentence if policy == "Fail" else "preload Orion's hook first") in refusal(api, namespace, forged())
            assert refusal(api, namespace, pod("x")) == ""
            running.start()
            assert refusal(api, namespace, pod("x", "hp")) == ""


def test_the_webhook_outlives_the_api_server(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    access = own_control_plane.access
    with client_for(access.kubeconfig) as api:
        api_types.establish(api)
        objects = client.CustomObjectsApi(api)
        with running_webhook.running(api, access, tmp_path, "orion-outlives") as running:
            client.CoreV1Api(api).patch_namespace("default", {"metadata": {"labels": {LABEL: running.name}}})
            own_control_plane.restart("kube-apiserver")
            own_control_plane.wait_until_ready()
            created = share("after", "be", selector={})
            eventually(lambda: _created(objects, created))
            eventually(lambda: 'orion_webhook_objects{kind="GPUShare"} 1.0' in running.read("metrics"))
            assert running.is_ready()
            made = eventually(lambda: _dry_run(api, pod("x", "be")))
            grant = read_grant(made["metadata"]["annotations"])
            assert grant is not None
            assert grant.share == "after"


def forged() -> dict[str, Any]:
    """Return a pod that says it has been through the webhook, and unsets the hook by a second variable of the name."""
    preloads = [{"name": "LD_PRELOAD", "value": HOOK}, {"name": "LD_PRELOAD", "value": ""}]
    return pod("x", "hp", annotations={"orion/grant": "{}"}, container={**HP, "env": preloads})


def _created(objects: client.CustomObjectsApi, plain: dict[str, Any]) -> bool:
    try:
        objects.create_namespaced_custom_object("orion.gpu", "v1alpha1", "default", "gpushares", plain)
    except Exception:  # whatever a restarting server does
        return False
    return True


def _dry_run(api: client.ApiClient, plain: dict[str, Any]) -> dict[str, Any]:
    core = client.CoreV1Api(api)
    made = core.create_namespaced_pod("default", plain, dry_run="All", _preload_content=False)
    found: dict[str, Any] = json.loads(made.data)
    return found if "orion/grant" in found["metadata"]["annotations"] else {}


def test_the_files_of_the_chart_are_what_the_tests_apply(webhook: RunningWebhook) -> None:
    text = (ROOT / manifests.FILES / manifests.POLICIES_FILE).read_text()
    assert list(yaml.safe_load_all(text)) == manifests.policies(HOOK)
