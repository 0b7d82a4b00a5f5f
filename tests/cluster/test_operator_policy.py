"""The policies that restrict the operator, and what RBAC refuses to each component, at a real API server."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from orion.crds.annotations import STARTUP_TAINT
from tests.cluster import api_types
from tests.cluster.conftest import FakeNode, client_for
from tests.cluster.refusals import refusal
from tests.cluster.rights import bind
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

FILES = Path(__file__).parents[2] / "charts" / "orion" / "files"
GROUP, VERSION, DEVICES = "orion.gpu", "v1alpha1", "gpudevices"
ROLES = {
    "operator": ("operator-role.yaml", "certificates-role.yaml"),
    "webhook": ("webhook-role.yaml",),
    "agent": ("agent-role.yaml",),
    "cleanup": ("cleanup-role.yaml",),
}
FORBIDDEN = {
    ("list", "", "secrets", ""),
    ("get", "", "secrets", ""),
    ("list", "", "configmaps", ""),
    ("create", "", "pods", ""),
    ("delete", "", "pods", ""),
    ("patch", "", "pods", ""),
    ("patch", "", "pods", "ephemeralcontainers"),
    ("create", "", "pods", "exec"),
    ("create", "", "pods", "attach"),
    ("get", "", "pods", "log"),
    ("create", "", "pods", "binding"),
    ("create", "", "serviceaccounts", "token"),
    ("delete", "", "nodes", ""),
    ("get", "", "nodes", "proxy"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings", ""),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles", ""),
    ("bind", "rbac.authorization.k8s.io", "clusterroles", ""),
    ("impersonate", "", "users", ""),
    ("patch", "admissionregistration.k8s.io", "validatingadmissionpolicies", ""),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", ""),
    ("delete", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", ""),
    ("patch", "admissionregistration.k8s.io", "validatingadmissionpolicybindings", ""),
    ("list", "discovery.k8s.io", "endpointslices", ""),
    ("patch", "apiextensions.k8s.io", "customresourcedefinitions", ""),
    ("patch", GROUP, "gpushares", ""),
    ("create", GROUP, "gpushares", ""),
    ("patch", GROUP, DEVICES, ""),
    ("deletecollection", GROUP, DEVICES, ""),
    ("anynode", GROUP, DEVICES, ""),
}
ABSENT = {"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "00000000-0000-0000-0000-000000000000"}
FORBIDDEN_TO = {
    "operator": {
        ("get", "", "pods", ""),
        ("patch", "", "pods", "status"),
        ("get", "", "configmaps", ""),
        ("patch", "", "configmaps", ""),
        ("create", GROUP, DEVICES, ""),
    },
    "webhook": {
        ("list", "", "pods", ""),
        ("list", "", "nodes", ""),
        ("patch", GROUP, DEVICES, "status"),
        ("delete", GROUP, DEVICES, ""),
    },
    "agent": {
        ("get", "", "pods", ""),
        ("list", "", "pods", ""),
        ("watch", "", "pods", ""),
        ("delete", GROUP, DEVICES, ""),
        ("patch", "", "pods", "status"),
        ("patch", "", "nodes", ""),
        ("list", "", "nodes", ""),
        ("create", "", "pods", "eviction"),
        ("release", GROUP, DEVICES, ""),
        ("list", GROUP, "gpushares", ""),
    },
    "cleanup": {
        ("delete", GROUP, DEVICES, ""),
        ("list", "", "pods", ""),
        ("patch", "", "pods", "status"),
        ("patch", "", "nodes", "status"),
        ("create", GROUP, DEVICES, ""),
    },
}


def give_rights(api: client.ApiClient, component: str, namespace: str) -> str:
    """Bind a user to the component's roles, as the chart does; return the user."""
    user = f"system:serviceaccount:{namespace}:orion-{component}"
    for file in ROLES[component]:
        bind(api, FILES / file, user, namespace)
    return user


@pytest.fixture
def given(api: client.ApiClient, namespace: str) -> Iterator[Callable[[str], str]]:
    """Gives a user a component's rights; returns the user. The rights are removed after the test."""
    yield lambda component: give_rights(api, component, namespace)
    rights = client.RbacAuthorizationV1Api(api)
    for binding in rights.list_cluster_role_binding().items:
        if namespace in binding.metadata.name:
            rights.delete_cluster_role_binding(binding.metadata.name)
            rights.delete_cluster_role(binding.role_ref.name)


@pytest.mark.parametrize("component", ROLES)
def test_a_component_has_no_right_that_it_does_not_need(
    api: client.ApiClient, namespace: str, given: Callable[[str], str], component: str
) -> None:
    user, reviews = given(component), client.AuthorizationV1Api(api)

    def allowed(verb: str, group: str, resource: str, subresource: str, where: str) -> bool:
        right = {"verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": where}
        review = reviews.create_subject_access_review({"spec": {"user": user, "resourceAttributes": right}})
        return bool(review.status.allowed)

    eventually(lambda: allowed("list", GROUP, DEVICES, "", ""))
    wrong = [
        (each, where)
        for each in FORBIDDEN | FORBIDDEN_TO[component]
        for where in ("", "kube-system", namespace)
        if allowed(*each, where)
    ]
    assert wrong == []


@pytest.fixture
def operator(
    api: client.ApiClient, namespace: str, given: Callable[[str], str], kubeconfig_for: Callable[..., Path]
) -> Iterator[client.ApiClient]:
    """A user with the operator's rights, under the chart's policies, which apply to this user only."""
    api_types.establish(api)
    user = given("operator")
    admission, names = client.AdmissionregistrationV1Api(api), []
    objects = list(yaml.safe_load_all((FILES / "operator-policy.yaml").read_text()))
    for definition, binding in zip(objects[::2], objects[1::2], strict=True):
        name = f"{definition['metadata']['name']}-{namespace}"
        ours = f"request.userInfo.username.startsWith('system:serviceaccount:{namespace}:')"
        definition["spec"]["matchConditions"].append({"name": "of-this-test", "expression": ours})
        definition["metadata"]["name"] = binding["metadata"]["name"] = binding["spec"]["policyName"] = name
        admission.create_validating_admission_policy(definition)
        admission.create_validating_admission_policy_binding(binding)
        names.append(name)
    with client_for(kubeconfig_for(user)) as taken:
        yield taken
    for name in names:
        admission.delete_validating_admission_policy_binding(name)
        admission.delete_validating_admission_policy(name)


def test_the_operator_can_change_only_orions_labels_of_nodes(operator: client.ApiClient, fake_node: FakeNode) -> None:
    core, node = client.CoreV1Api(operator), fake_node("a", labels={"ours": "1"})
    refused = "only the labels orion.gpu/... of a node"
    taint = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    eventually(lambda: refused in refusal(core.patch_node, node, taint, dry_run="All"))
    assert refusal(core.patch_node, node, {"metadata": {"labels": {"orion.gpu/gpus": "1"}}}) == ""
    assert refusal(core.patch_node, node, {"metadata": {"labels": {"orion.gpu/gpus": None}}}) == ""
    for change in (
        {"spec": {"unschedulable": True}},
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
        {"metadata": {"labels": {"ours": None}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"ownerReferences": [ABSENT]}},  # the garbage collector deletes objects whose owner is absent
        {"metadata": {"finalizers": ["orion.gpu/kept"]}},
    ):
        assert refused in refusal(core.patch_node, node, change), change


def test_the_operator_can_remove_the_startup_taint_and_nothing_else_of_a_nodes_spec(
    api: client.ApiClient, operator: client.ApiClient, fake_node: FakeNode
) -> None:
    by_operator, by_us = client.CoreV1Api(operator), client.CoreV1Api(api)
    refused = "of a node, and remove its startup taint"
    other = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    ours = [{"key": STARTUP_TAINT, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    like = {"key": f"{STARTUP_TAINT}-2", "effect": "NoSchedule"}
    node = fake_node("a")

    def have(*taints: dict[str, str], **spec: Any) -> None:
        by_us.patch_node(node, {"spec": {"taints": list(taints), "unschedulable": None, **spec}})

    def write(*taints: dict[str, str], **spec: Any) -> str:
        return refusal(by_operator.patch_node, node, {"spec": {"taints": list(taints) or None, **spec}})

    taint = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    eventually(lambda: refused in refusal(by_operator.patch_node, node, taint, dry_run="All"))
    have(other, *ours, like)
    for spec in ({"unschedulable": True}, {"providerID": "fake://1"}, {"podCIDR": "198.51.100.0/24"}):
        assert refused in write(other, like, **spec), spec
    for kept in (
        (like,),
        (other,),
        (*ours, like),
        (like, other),
        (other, {**like, "value": "x"}),
    ):
        assert refused in write(*kept), kept
    moved = {**ours[0], "effect": "PreferNoSchedule"}
    assert refused in write(other, moved, ours[1], like)
    assert write(other, like) == ""
    assert by_us.read_node(node).spec.taints[0].key == other["key"]
    assert refused in write(other, ours[0], like)  # it cannot put the taint back
    have(ours[0])
    assert write() == ""
    assert not by_us.read_node(node).spec.taints
    have(ours[0], unschedulable=True)
    assert refused in write(unschedulable=None)


def test_the_operator_can_only_set_the_health_of_gpus_to_unknown(
    api: client.ApiClient, operator: client.ApiClient
) -> None:
    name = f"gpu-{uuid.uuid4()}"

    def write(by: client.ApiClient, dry_run: str | None = None, **status: Any) -> None:
        change = {"status": status}
        options = {"dry_run": dry_run} if dry_run else {}
        client.CustomObjectsApi(by).patch_cluster_custom_object_status(GROUP, VERSION, DEVICES, name, change, **options)

    objects = client.CustomObjectsApi(api)
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GPUDevice", "metadata": {"name": name}, "spec": {}}
    objects.create_cluster_custom_object(GROUP, VERSION, DEVICES, body)
    try:
        write(api, node="gone", health="Healthy")
        refused = "set the health of a GPUDevice to Unknown"
        eventually(lambda: refused in refusal(lambda: write(operator, "All", node="a", health="Healthy")))
        assert refused in refusal(lambda: write(operator, health="Unhealthy"))
        assert refused in refusal(lambda: write(operator, node="here", health="Unknown"))
        assert refusal(lambda: write(operator, health="Unknown")) == ""
    finally:
        objects.delete_cluster_custom_object(GROUP, VERSION, DEVICES, name)


def test_the_operator_cannot_delete_gpus_whose_spec_people_wrote(
    api: client.ApiClient, operator: client.ApiClient
) -> None:
    objects, by_operator = client.CustomObjectsApi(api), client.CustomObjectsApi(operator)

    def make(**spec: Any) -> str:
        name = f"gpu-{uuid.uuid4()}"
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GPUDevice", "metadata": {"name": name}, "spec": spec}
        objects.create_cluster_custom_object(GROUP, VERSION, DEVICES, body)
        return name

    def delete(name: str, **options: Any) -> str:
        return refusal(by_operator.delete_cluster_custom_object, GROUP, VERSION, DEVICES, name, **options)

    written, default = [make(cordon=True), make(mode="mps")], [make(), make(cordon=False, mode="timeslice")]
    refused = "may not delete a GPUDevice whose spec differs from the defaults"
    eventually(lambda: refused in delete(written[0], dry_run="All"))
    assert all(refused in delete(name) for name in written)
    assert [delete(name) for name in default] == ["", ""]
    for name in written:
        objects.delete_cluster_custom_object(GROUP, VERSION, DEVICES, name)


def test_the_operator_can_create_only_the_config_map_of_its_certificates(
    operator: client.ApiClient, namespace: str
) -> None:
    create = client.CoreV1Api(operator).create_namespaced_config_map
    refused = "only the ConfigMap of its certificates"
    other = {"metadata": {"name": "other"}}
    eventually(lambda: refused in refusal(create, namespace, other, dry_run="All"))
    assert refused in refusal(create, namespace, other)
    assert refused in refusal(create, namespace, {"metadata": {"generateName": "orion-operator"}})
    assert refusal(create, namespace, {"metadata": {"name": "orion-operator"}}) == ""
    assert "forbidden" in refusal(create, "default", {"metadata": {"name": "orion-operator"}})
