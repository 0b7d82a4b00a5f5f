"""Admission at a real API server: how it changes pods, and which warnings and refusals people see."""

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from orion.crds.annotations import PINNED_SHARE
from orion.operator.webhook import ceilings, manifests
from orion.operator.webhook.defaults import Defaults
from tests.cluster.admitted_pods import pod, share
from tests.cluster.conftest import Kubectl
from tests.cluster.running_webhook import RunningWebhook
from tests.waiting import eventually

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
    assert made["metadata"]["annotations"]["orion/priority"] == priority
    assert PINNED_SHARE in made["metadata"]["annotations"]


# -- How pods change ---------------------------------------------------------------------------------------------------


def test_a_pod_gets_slots_and_the_hook(api: client.ApiClient, admitted: str) -> None:
    given = pod("one", "hp", container={"resources": {"limits": {"nvidia.com/gpu": "2"}}})
    made = client.CoreV1Api(api).create_namespaced_pod(admitted, given, _preload_content=False)
    assert_has_slot(json.loads(made.data), "hp", 2)


def test_a_pod_that_does_not_concern_orion_is_left_alone(api: client.ApiClient, admitted: str) -> None:
    given = pod("plain", container={"resources": {"limits": {"nvidia.com/gpu": "1"}}}, hostPID=True)
    made = json.loads(client.CoreV1Api(api).create_namespaced_pod(admitted, given, _preload_content=False).data)
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert PINNED_SHARE not in made["metadata"].get("annotations", {})


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
def test_pods_of_controllers_get_slots(
    kubectl: Kubectl, admitted: str, group: str, kind: str, spec: dict[str, Any]
) -> None:
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


def test_a_dry_run_shows_the_slots_and_creates_nothing(kubectl: Kubectl, admitted: str) -> None:
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


def test_a_share_is_pinned_to_the_pods_that_it_selects(kubectl: Kubectl, admitted: str) -> None:
    made = share("chat", "hp", selector={"matchLabels": {"app": "chat"}})
    kubectl("create", "-n", admitted, "-f", "-", given=made)

    def pinned() -> bool:
        shown = kubectl(
            "create", "-n", admitted, "--dry-run=server", "-o", "json", "-f", "-",
            given=pod("chat", "hp", labels={"app": "chat"}),
        )  # fmt: skip
        return str(json.loads(shown)["metadata"]["annotations"][PINNED_SHARE]) == "chat"

    eventually(pinned)


def test_a_pod_that_reserves_more_memory_than_any_gpu_has_waits_for_larger_gpus(
    api: client.ApiClient, kubectl: Kubectl, admitted: str
) -> None:
    name = f"gpu-{uuid.uuid4()}"
    meta = {"apiVersion": "orion.gpu/v1alpha1", "kind": "GPUDevice", "metadata": {"name": name}}
    kubectl("create", "-f", "-", given={**meta, "spec": {}})
    try:
        status = json.dumps({"status": {"memory": {"total": "80Gi"}}})
        kubectl("patch", "gpudevice", name, "--subresource=status", "--type=merge", "-p", status)
        kubectl("create", "-n", admitted, "-f", "-", given=share("huge", "be", memory={"request": "15Ti"}))
        given = pod("x", "be", annotations={"orion/share": "huge"})

        def required() -> list[dict[str, Any]]:
            core = client.CoreV1Api(api)
            with contextlib.suppress(client.ApiException):  # the webhook does not know the share yet
                made = core.create_namespaced_pod(admitted, given, dry_run="All", _preload_content=False)
                affinity = json.loads(made.data)["spec"].get("affinity", {}).get("nodeAffinity", {})
                terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
                return [each for term in terms for each in term["matchExpressions"]]
            return []

        enough = {"key": "orion.gpu/gpu-memory", "operator": "Gt", "values": [str(15 * 2**20 - 1)]}
        assert eventually(required) == [enough]
    finally:
        kubectl("delete", "gpudevice", name)


def test_a_share_and_a_pod_can_be_applied_together(kubectl: Kubectl, admitted: str, webhook: RunningWebhook) -> None:
    for turn in range(10):
        name = f"together-{turn}"
        both = [share(name, "be", compute={"request": 0.4}), pod(name, "be", annotations={"orion/share": name})]
        kubectl("apply", "-n", admitted, "-f", "-", given="\n---\n".join(map(json.dumps, both)))
    assert "orion_webhook_second_looks_total" in webhook.read("metrics")


def test_a_change_by_another_webhook_causes_a_second_invocation(kubectl: Kubectl, admitted: str) -> None:
    first = json.loads(kubectl("create", "-n", admitted, "-o", "json", "-f", "-", given=pod("first", "be")))
    again = {key: first["metadata"][key] for key in ("annotations",)} | {"name": "again"}
    for container in first["spec"]["containers"]:
        del container["volumeMounts"]  # they mount the service account's volume, whose name the other pod does not have
    spec = {"containers": first["spec"]["containers"]}
    second = {"apiVersion": "v1", "kind": "Pod", "metadata": again, "spec": spec}
    made = json.loads(kubectl("create", "-n", admitted, "-o", "json", "-f", "-", given=second))
    assert made["spec"]["containers"][0]["env"] == first["spec"]["containers"][0]["env"]
    assert_has_slot(made, "be")


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
        return dict(json.loads(done.stdout)) if done.stdout else {"error": done.stderr}

    assert explain("plain")["reason"] == "NotOurs"
    # The pod may be older than the webhook's knowledge of the share; a new pod would have that share's grant.
    assert explain("mine")["share"] == "train"
    assert f"pod gone in namespace {admitted} cannot be read" in explain("gone")["error"]


def test_the_tests_apply_the_policies_of_the_chart(webhook: RunningWebhook) -> None:
    files = (
        (manifests.POLICIES_FILE, manifests.policies(HOOK)),
        (manifests.CEILINGS_FILE, manifests.bound(ceilings.policies())),
    )
    for name, made in files:
        assert list(yaml.safe_load_all((ROOT / manifests.FILES / name).read_text())) == made
