"""Tenants at a real API server: a user with all rights in a namespace gets no more of a GPU than its shares give.

The webhook sees pods only when they are created. These tests change pods after their creation, or bypass the webhook.
"""

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from orion.crds.annotations import read_grant
from orion.operator.webhook import manifests
from tests.cluster.admitted_pods import pod, refusal, share
from tests.cluster.conftest import Kubectl, client_for
from tests.waiting import eventually

pytestmark = pytest.mark.cluster


@pytest.fixture
def tenant(
    api: client.ApiClient, admitted: str, kubeconfig_for: Callable[..., Path]
) -> Iterator[client.CoreV1Api]:  # fmt: skip
    """A user who may do everything in the namespace, and nothing outside."""
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
        assert "changed by Orion's operator only" in _patched(change, admitted, {"orion.gpu/grant": "{}"})
        assert "changed by Orion's operator only" in _patched(change, admitted, {"orion.gpu/grant": None})
        assert "cannot be changed once it exists" in _patched(change, admitted, {"orion/priority": "hp"})
        assert "cannot be changed once it exists" in _patched(change, admitted, {"orion/priority": None})
        assert "cannot be changed once it exists" in _patched(change, admitted, {"orion/share": "other"})
        assert _patched(change, admitted, {"their.own/word": "fine"}) == ""


@pytest.mark.parametrize("of", ["annotations", "labels"])
def test_a_tenant_cannot_add_annotations_by_a_binding(admitted: str, tenant: client.CoreV1Api, of: str) -> None:
    tenant.create_namespaced_pod(admitted, pod("mine", "be"))
    binding = {
        "metadata": {"name": "mine", of: {"orion.gpu/grant": "{}"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "none"},
    }
    with pytest.raises(client.ApiException) as refused:
        tenant.create_namespaced_pod_binding("mine", admitted, binding, _preload_content=False)
    assert "a Binding cannot give annotations or labels" in str(refused.value.body)


def test_an_existing_pod_cannot_become_a_tenant(admitted: str, tenant: client.CoreV1Api) -> None:
    tenant.create_namespaced_pod(admitted, pod("mine"))
    for name in ("orion/priority", "orion/share"):
        message = _patched(tenant.patch_namespaced_pod, admitted, {name: "hp"})
        assert "cannot be changed once it exists" in message


def test_users_who_may_update_grants_can_change_grants(
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
            eventually(lambda: _patched(status, admitted, {"orion.gpu/grant": "{}"}) == "")
            assert "cannot be changed" in _patched(status, admitted, {"orion/priority": "hp"})
    finally:
        authorization.delete_cluster_role_binding(name)
        authorization.delete_cluster_role(name)


def test_a_tenant_cannot_move_a_pod_to_another_share_by_its_labels(
    kubectl: Kubectl, admitted: str, tenant: client.CoreV1Api
) -> None:
    for name, limit in (("small", "1Gi"), ("large", "64Gi")):
        given = share(name, "be", selector={"matchLabels": {"app": name}}, memory={"limit": limit})
        kubectl("create", "-n", admitted, "-f", "-", given=given)
    tenant.create_namespaced_pod(admitted, pod("mine", "be", labels={"app": "small"}))
    for change in (tenant.patch_namespaced_pod, tenant.patch_namespaced_pod_status):
        for app in ("large", None):  # without the label no share would govern the pod, and it would have no limits
            with pytest.raises(client.ApiException) as refused:
                change("mine", admitted, {"metadata": {"labels": {"app": app}}})
            assert "labels of a pod that shares a GPU" in str(refused.value.body)
    tenant.create_namespaced_pod(admitted, pod("named", "be", annotations={"orion/share": "small"}))
    tenant.create_namespaced_pod(admitted, pod("plain", labels={"app": "small"}))
    for name in ("named", "plain"):  # a named share, or no share: labels change nothing
        tenant.patch_namespaced_pod(name, admitted, {"metadata": {"labels": {"app": "large"}}})


def test_a_grant_that_a_tenant_applies_is_overwritten(
    kubectl: Kubectl, admitted: str, tenant: client.CoreV1Api
) -> None:
    forged = json.dumps({"priority": "hp", "containers": {"main": {"slots": 8}}})
    limits = {"limits": {"orion.gpu/be": "1"}}
    given = pod("mine", "be", annotations={"orion.gpu/grant": forged}, container={"resources": limits})
    shown = kubectl("apply", "--server-side", "-n", admitted, "-o", "json", "-f", "-", given=given)
    grant = read_grant(json.loads(shown)["metadata"]["annotations"])
    assert grant is not None
    assert (grant.priority, grant.containers["main"].slots) == ("be", 1)


@pytest.mark.parametrize("resource", ["", "status", "resize", "ephemeralcontainers"])
def test_no_subresource_lets_a_tenant_change_a_grant(admitted: str, tenant: client.CoreV1Api, resource: str) -> None:
    tenant.create_namespaced_pod(admitted, pod("mine", "be"))
    name = "_".join(filter(None, ("namespaced_pod", resource)))
    made = json.loads(tenant.read_namespaced_pod("mine", admitted, _preload_content=False).data)
    before = made["metadata"]["annotations"]["orion.gpu/grant"]
    made["metadata"]["annotations"]["orion.gpu/grant"] = "{}"
    with contextlib.suppress(
        client.ApiException
    ):  # the API server refuses some of these, and ignores the metadata of others
        getattr(tenant, f"replace_{name}")("mine", admitted, made)
    assert tenant.read_namespaced_pod("mine", admitted).metadata.annotations["orion.gpu/grant"] == before


def test_a_slot_cannot_be_added_to_a_pod_that_exists(admitted: str, tenant: client.CoreV1Api) -> None:
    tenant.create_namespaced_pod(admitted, pod("mine", "be"))
    more = {"orion.gpu/be": "2"}
    patch = {"spec": {"containers": [{"name": "main", "resources": {"limits": more, "requests": more}}]}}
    for change in (tenant.patch_namespaced_pod, tenant.patch_namespaced_pod_resize):
        with pytest.raises(client.ApiException) as refused:
            change("mine", admitted, patch)
        assert refused.value.status == 422


ODD = "\u00fc\u2028\U0001f600"
STRANGE: dict[str, dict[str, Any]] = {
    "a thousand variables": {"env": [{"name": f"V{number}", "value": "$(V0)"} for number in range(1_000)]},
    "a megabyte": {"env": [{"name": "BIG", "value": "x" * 2**20}]},
    "unicode": {"env": [{"name": "LD_PRELOAD", "value": f"/{ODD}.so"}, {"name": "X", "value": ODD}]},
    "nul": {"env": [{"name": "LD_PRELOAD", "value": "/a\0.so"}]},
}


@pytest.mark.parametrize("case", STRANGE)
def test_unusual_pods_are_admitted_like_others(api: client.ApiClient, admitted: str, case: str) -> None:
    assert refusal(api, admitted, pod("strange", "be", container=dict(STRANGE[case]))) == ""
    generated = pod("", "be", container=dict(STRANGE[case]))
    generated["metadata"] |= {"name": None, "generateName": "strange-"}
    assert refusal(api, admitted, generated) == ""


def test_zero_slots_are_refused_by_the_webhook_and_not_by_the_policy(api: client.ApiClient, admitted: str) -> None:
    none = pod("x", container={"resources": {"limits": {"orion.gpu/be": "0"}}})
    assert "asks for 0 of orion.gpu/be" in refusal(api, admitted, none)
