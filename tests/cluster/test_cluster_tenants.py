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

from orion.crds.annotations import PINNED_SHARE
from tests.cluster.admitted_pods import pod, refusal, share
from tests.cluster.conftest import Kubectl, client_for
from tests.cluster.refusals import refusal as said
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
    return said(change, "mine", namespace, {"metadata": {"annotations": annotations}})


def test_a_tenant_cannot_change_a_pin_or_a_priority(admitted: str, tenant: client.CoreV1Api) -> None:
    tenant.create_namespaced_pod(admitted, pod("mine", "be"))
    for change in (tenant.patch_namespaced_pod, tenant.patch_namespaced_pod_status):
        assert "cannot be changed once it exists" in _patched(change, admitted, {"orion.gpu/share": "other"})
        assert "cannot be changed once it exists" in _patched(change, admitted, {"orion.gpu/share": None})
        assert "cannot be changed once it exists" in _patched(change, admitted, {"orion.gpu/more": ""})
        assert "cannot be changed once it exists" in _patched(change, admitted, {"orion/priority": "hp"})
        assert "cannot be changed once it exists" in _patched(change, admitted, {"orion/priority": None})
        assert "cannot be changed once it exists" in _patched(change, admitted, {"orion/share": "other"})
        assert _patched(change, admitted, {"their.own/word": "fine"}) == ""


@pytest.mark.parametrize("of", ["annotations", "labels"])
def test_a_tenant_cannot_add_annotations_by_a_binding(admitted: str, tenant: client.CoreV1Api, of: str) -> None:
    tenant.create_namespaced_pod(admitted, pod("mine", "be"))
    binding = {
        "metadata": {"name": "mine", of: {"orion.gpu/share": "other"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "none"},
    }
    with pytest.raises(client.ApiException) as refused:
        tenant.create_namespaced_pod_binding("mine", admitted, binding, _preload_content=False)
    assert "a Binding cannot give annotations or labels" in str(refused.value.body)


def test_an_existing_pod_cannot_become_a_tenant(admitted: str, tenant: client.CoreV1Api) -> None:
    tenant.create_namespaced_pod(admitted, pod("mine"))
    for name in ("orion/priority", "orion/share", "orion.gpu/share"):
        message = _patched(tenant.patch_namespaced_pod, admitted, {name: "hp"})
        assert "cannot be changed once it exists" in message


def test_neither_administrators_nor_kubelets_can_change_a_pin(api: client.ApiClient, admitted: str) -> None:
    core = client.CoreV1Api(api)
    core.create_namespaced_pod(admitted, pod("mine", "be"))
    for change in (core.patch_namespaced_pod, core.patch_namespaced_pod_status):
        assert "cannot be changed once it exists" in _patched(change, admitted, {"orion.gpu/share": "other"})


def test_other_labels_of_a_pod_can_change_and_its_pin_stays(
    kubectl: Kubectl, admitted: str, tenant: client.CoreV1Api
) -> None:
    for name in ("small", "large"):
        given = share(name, "be", selector={"matchLabels": {"app": name}})
        kubectl("create", "-n", admitted, "-f", "-", given=given)
    made = eventually(lambda: _pinned(tenant, admitted, pod("mine", "be", labels={"app": "small"})))
    for app in ("large", None):
        tenant.patch_namespaced_pod("mine", admitted, {"metadata": {"labels": {"app": app}}})
        assert tenant.read_namespaced_pod("mine", admitted).metadata.annotations[PINNED_SHARE] == made == "small"


def test_a_gate_and_labels_can_change_in_one_patch(admitted: str, tenant: client.CoreV1Api) -> None:
    """Kueue does this when it admits a pod."""
    tenant.create_namespaced_pod(admitted, pod("mine", "be", schedulingGates=[{"name": "kueue.x-k8s.io/topology"}]))
    labels = {"kueue.x-k8s.io/podset": "main"}
    patch = {"metadata": {"labels": labels}, "spec": {"schedulingGates": None, "nodeSelector": {"rack": "a"}}}
    tenant.patch_namespaced_pod("mine", admitted, patch)
    changed = tenant.read_namespaced_pod("mine", admitted)
    assert labels.items() <= changed.metadata.labels.items()
    assert changed.spec.scheduling_gates is None


def _pinned(core: client.CoreV1Api, namespace: str, plain: dict[str, Any]) -> str:
    """Create a pod; return its pin. Without a pin the pod is deleted: the webhook may learn of the share later."""
    made = core.create_namespaced_pod(namespace, plain)
    if not made.metadata.annotations[PINNED_SHARE]:
        core.delete_namespaced_pod(made.metadata.name, namespace, grace_period_seconds=0)
    return str(made.metadata.annotations[PINNED_SHARE])


def test_a_pin_that_a_tenant_applies_is_overwritten(kubectl: Kubectl, admitted: str, tenant: client.CoreV1Api) -> None:
    limits = {"limits": {"orion.gpu/be": "1"}}
    given = pod("mine", "be", annotations={"orion.gpu/share": "of-others"}, container={"resources": limits})
    shown = kubectl("apply", "--server-side", "-n", admitted, "-o", "json", "-f", "-", given=given)
    assert json.loads(shown)["metadata"]["annotations"][PINNED_SHARE] == ""


@pytest.mark.parametrize("resource", ["", "status", "resize", "ephemeralcontainers"])
def test_no_subresource_lets_a_tenant_change_a_pin(admitted: str, tenant: client.CoreV1Api, resource: str) -> None:
    tenant.create_namespaced_pod(admitted, pod("mine", "be"))
    name = "_".join(filter(None, ("namespaced_pod", resource)))
    made = json.loads(tenant.read_namespaced_pod("mine", admitted, _preload_content=False).data)
    before = made["metadata"]["annotations"][PINNED_SHARE]
    made["metadata"]["annotations"][PINNED_SHARE] = "other"
    with contextlib.suppress(
        client.ApiException
    ):  # the API server refuses some of these, and ignores the metadata of others
        getattr(tenant, f"replace_{name}")("mine", admitted, made)
    assert tenant.read_namespaced_pod("mine", admitted).metadata.annotations[PINNED_SHARE] == before


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
