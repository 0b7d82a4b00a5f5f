"""Ceilings of a namespace at a real API server: what tenants may write, the sentences, and old objects."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from orion.operator.webhook import ceilings, manifests
from testbed.access import Access
from tests.cluster.admitted_pods import HP, pod, refusal, share
from tests.cluster.conftest import client_for
from tests.cluster.refusals import refusal as said
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

GROUP, VERSION, SHARES = "orion.gpu", "v1alpha1", "gpushares"
MEMORY, HALF = {"memory": {"limit": "8Gi"}}, {"compute": {"limit": 0.5}}


class Tenant:
    """A user with Kubernetes' role `edit` and the chart's rights on GPUShares in one namespace, and nothing else."""

    def __init__(self, speaking: client.ApiClient, namespace: str) -> None:
        self.core, self.apps = client.CoreV1Api(speaking), client.AppsV1Api(speaking)
        self._custom, self._namespace = client.CustomObjectsApi(speaking), namespace

    def creates(self, made: dict[str, Any], dry: bool = True) -> str:
        """Create a share, by default only on trial; return the refusal, or nothing."""
        more = {"dry_run": "All"} if dry else {}
        return said(self._custom.create_namespaced_custom_object, GROUP, VERSION, self._namespace, SHARES, made, **more)

    def patches(self, name: str, **spec: Any) -> str:
        """Change a share; return the refusal, or nothing."""
        patch = self._custom.patch_namespaced_custom_object
        return said(patch, GROUP, VERSION, self._namespace, SHARES, name, {"spec": spec})


@pytest.fixture
def tenant(api: client.ApiClient, admitted: str, control_plane: Access, tmp_path: Path) -> Iterator[Tenant]:
    rights = client.RbacAuthorizationV1Api(api)
    rules = [{"apiGroups": [GROUP], "resources": [SHARES, "gpuprofiles"], "verbs": ["create", "update", "patch"]}]
    rights.create_namespaced_role(admitted, {"metadata": {"name": "shares"}, "rules": rules})
    subjects = [{"kind": "ServiceAccount", "name": "default", "namespace": admitted}]
    for kind, name in (("ClusterRole", "edit"), ("Role", "shares")):
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        rights.create_namespaced_role_binding(
            admitted, {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}
        )
    token = client.CoreV1Api(api).create_namespaced_service_account_token("default", admitted, {"spec": {}})
    with client_for(control_plane.kubeconfig_with(token.status.token, tmp_path / "tenant.kubeconfig")) as own:
        made = Tenant(own, admitted)
        eventually(lambda: made.creates(share("probe", "be")) == "")
        yield made


@pytest.fixture
def ceil(api: client.ApiClient, admitted: str) -> Callable[..., None]:
    """Sets ceilings as an administrator: `ceil(max_memory="20Gi")`; None removes one."""
    core = client.CoreV1Api(api)

    def ceil(**values: str | None) -> None:
        marks = {f"orion/{name.replace('_', '-')}": value for name, value in values.items()}
        core.patch_namespace(admitted, {"metadata": {"annotations": marks}})

    return ceil


FIELDS: dict[str, tuple[str, str, str, dict[str, Any], dict[str, Any], str]] = {
    # The ceiling and its value; a share's priority, a spec above the ceiling and one below; how the sentence begins.
    "slowdown": ("max_slowdown", "1.3", "hp", {"maxSlowdown": 1.31}, {"maxSlowdown": 1.3}, "spec.maxSlowdown is 1.31"),
    "whole slowdown": ("max_slowdown", "2", "hp", {"maxSlowdown": 3}, {"maxSlowdown": 2}, "spec.maxSlowdown is 3"),
    "time": ("max_time", "0.5", "be", {"compute": {"limit": 1}}, HALF, "spec.compute.limit is 1"),
    "no time": ("max_time", "0.5", "be", {"compute": None}, HALF, "spec.compute.limit is not set"),
    "request": ("max_request", "0.4", "be", {"compute": {"request": 0.5}}, {"compute": {"request": 0.4}},
                "spec.compute.request is 0.5"),
    "memory": ("max_memory", "20Gi", "be", {"memory": {"limit": "21Gi"}}, MEMORY, "spec.memory.limit is 21Gi"),
    "GiB": ("max_memory", "20GiB", "be", {"memory": {"limit": "22GB"}}, MEMORY, "spec.memory.limit is 22GB"),
    "bytes": ("max_memory", "8589934592", "be", {"memory": {"limit": 8589934593}}, MEMORY, "spec.memory.limit is 85"),
    "no memory": ("max_memory", "20Gi", "hp", {"memory": None}, MEMORY, "spec.memory.limit is not set"),
}  # fmt: skip


@pytest.mark.parametrize("case", FIELDS)
def test_a_share_above_a_ceiling_is_refused_and_one_at_the_ceiling_is_not(
    tenant: Tenant, admitted: str, ceil: Callable[..., None], case: str
) -> None:
    name, value, priority, above, at, sentence = FIELDS[case]
    ceil(**{name: value})
    eventually(lambda: sentence in tenant.creates(share("x", priority, **above)))
    refused = tenant.creates(share("x", priority, **above))
    annotation = f"orion/{name.replace('_', '-')}"
    assert f", above the ceiling {value} of Namespace {admitted} (annotation {annotation}): " in refused
    assert (
        f"set it to {value} or less, or ask somebody who may write Namespaces to set the annotation higher" in refused
    )
    assert tenant.creates(share("x", priority, **at), dry=False) == ""
    assert sentence in tenant.patches("x", **above)


def test_a_share_cannot_be_hp_where_be_is_the_ceiling(tenant: Tenant, admitted: str, ceil: Callable[..., None]) -> None:
    ceil(max_priority="be")
    sentence = f"spec.priority is hp, above the ceiling be of Namespace {admitted} (annotation orion/max-priority)"
    eventually(lambda: sentence in tenant.creates(share("x", "hp")))
    assert tenant.creates(share("x", "be")) == ""
    ceil(max_priority="hp")
    eventually(lambda: tenant.creates(share("x", "hp")) == "")


def test_an_old_share_above_a_new_ceiling_can_change_but_not_rise(tenant: Tenant, ceil: Callable[..., None]) -> None:
    old = share("old", "hp", memory={"limit": "60Gi"}, maxSlowdown=2)
    assert tenant.creates(old, dry=False) == ""
    ceil(max_memory="20Gi", max_slowdown="1.2", max_priority="be", max_time="0.5")
    eventually(lambda: "above the ceiling" in tenant.creates(share("x", "hp")))
    assert tenant.patches("old", failClosed=True) == ""
    assert tenant.patches("old", maxSlowdown=1.5) == ""  # lower, and still above the ceiling
    assert "spec.maxSlowdown is 1.6" in tenant.patches("old", maxSlowdown=1.6)
    assert "spec.memory.limit is 61Gi" in tenant.patches("old", memory={"limit": "61Gi"})
    assert "spec.memory.limit is not set" in tenant.patches("old", memory=None)
    assert tenant.patches("old", memory={"limit": "10Gi"}) == ""
    assert "spec.memory.limit is 60Gi" in tenant.patches("old", memory={"limit": "60Gi"})


def test_pods_cannot_be_hp_where_be_is_the_ceiling(
    api: client.ApiClient, tenant: Tenant, admitted: str, ceil: Callable[..., None]
) -> None:
    assert tenant.creates(share("old", "hp"), dry=False) == ""
    ceil(max_priority="be")
    sentence = (
        f"the priority of this pod is hp, above the ceiling be of Namespace {admitted} (annotation orion/max-priority)"
        ": set its annotation orion/priority to be, or ask somebody who may write Namespaces to set the ceiling to hp"
    )
    eventually(lambda: sentence in refusal(api, admitted, pod("x", "hp")))
    assert sentence in refusal(api, admitted, pod("x", container=HP))
    assert sentence in refusal(api, admitted, pod("x", annotations={"orion/share": "old"}))
    assert refusal(api, admitted, pod("x", "be")) == ""
    assert refusal(api, admitted, pod("x")) == ""
    made = pod("x", "hp")
    template = {"metadata": made["metadata"] | {"labels": {"app": "x"}}, "spec": made["spec"]}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    tenant.apps.create_namespaced_deployment(admitted, {"metadata": {"name": "x"}, "spec": spec})
    events = client.CoreV1Api(api).list_namespaced_event
    selector = "involvedObject.kind=ReplicaSet,reason=FailedCreate"
    eventually(
        lambda: any(sentence in each.message for each in events(admitted, field_selector=selector).items),
        what="the ReplicaSet has no Event with the sentence",
    )


@pytest.mark.parametrize(
    ("values", "field", "spec"),
    [({"max_memory": "20Gi"}, "memory.limit", MEMORY), ({"max_time": "1"}, "compute.limit", {"compute": {"limit": 1}})],
)
def test_a_pod_without_a_share_is_above_a_ceiling(
    api: client.ApiClient,
    tenant: Tenant,
    admitted: str,
    ceil: Callable[..., None],
    values: dict[str, str],
    field: str,
    spec: dict[str, Any],
) -> None:
    ceil(**values)
    sentence = f"no GPUShare governs this pod, so it has no {field}, above the ceiling"
    eventually(lambda: sentence in refusal(api, admitted, pod("x", "be")))
    assert tenant.creates(share("some", "be", **spec), dry=False) == ""
    assert refusal(api, admitted, pod("x", "be", annotations={"orion/share": "some"})) == ""


def test_the_default_of_the_installation_applies_to_a_namespace_without_the_annotation(
    api: client.ApiClient, tenant: Tenant, admitted: str, ceil: Callable[..., None]
) -> None:
    policies, here = ceilings.policies({"orion/max-priority": "be"}), {"kubernetes.io/metadata.name": admitted}
    made = manifests.bound(policies, f"defaults-{admitted}", {"matchLabels": here})
    admission = client.AdmissionregistrationV1Api(api)
    for policy, binding in zip(made[::2], made[1::2], strict=True):
        admission.create_validating_admission_policy(policy)
        admission.create_validating_admission_policy_binding(binding)
    try:
        eventually(lambda: "above the ceiling be" in tenant.creates(share("x", "hp")))
        eventually(lambda: "above the ceiling be" in refusal(api, admitted, pod("x", "hp")))
        ceil(max_priority="hp")
        eventually(lambda: tenant.creates(share("x", "hp")) == "")
        eventually(lambda: refusal(api, admitted, pod("x", "hp")) == "")
    finally:
        for policy, binding in zip(made[::2], made[1::2], strict=True):
            admission.delete_validating_admission_policy_binding(binding["metadata"]["name"])
            admission.delete_validating_admission_policy(policy["metadata"]["name"])


WRONG = {
    "max-priority": ("high", "must be hp or be"),
    "max-slowdown": ("0.5", "must be a number from 1 to 100"),
    "max-time": ("50%", "must be a number from 0.001 to 1"),
    "max-request": ("0", "must be a number from 0.01 to 1"),
    "max-memory": ("20 gigabytes\nor so", "must be an amount of memory from 1Mi to 16Ti"),
    "max-memry": ("20Gi", "a Namespace cannot have the annotation orion/max-memry: the ceilings of Orion are"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_ceiling_that_cannot_be_read_is_refused_where_it_is_written(
    api: client.ApiClient, tenant: Tenant, ceil: Callable[..., None], admitted: str, name: str
) -> None:
    value, sentence = WRONG[name]
    patch = client.CoreV1Api(api).patch_namespace
    marks = {"metadata": {"annotations": {f"orion/{name}": value}}}
    refused = eventually(lambda: said(patch, admitted, marks, dry_run="All"))
    assert sentence in refused


def test_a_ceiling_that_cannot_be_read_refuses_what_it_would_limit(
    api: client.ApiClient, tenant: Tenant, ceil: Callable[..., None], admitted: str
) -> None:
    core = client.CoreV1Api(api)
    assert tenant.creates(share("old", "hp", memory={"limit": "60Gi"}), dry=False) == ""
    label = core.read_namespace(admitted).metadata.labels["orion-test/admission"]
    core.patch_namespace(admitted, {"metadata": {"labels": {"orion-test/admission": None}}})  # without the policies
    eventually(lambda: said(ceil, max_memory="much", max_priority="none") == "")
    core.patch_namespace(admitted, {"metadata": {"labels": {"orion-test/admission": label}}})
    refused = eventually(lambda: tenant.creates(share("x", "hp", memory={"limit": "1Gi"})))
    sentence = (
        f"annotation orion/max-priority of Namespace {admitted} must be hp or be, not none; until somebody who may"
    )
    assert f"{sentence} write Namespaces corrects it, spec.priority cannot be set or raised" in refused
    assert sentence in refusal(api, admitted, pod("x", "hp"))
    sentence = f"annotation orion/max-memory of Namespace {admitted} must be an amount of memory from 1Mi to 16Ti"
    assert sentence in tenant.patches("old", memory={"limit": "61Gi"})
    assert tenant.patches("old", failClosed=True) == ""
    core.patch_namespace(admitted, {"metadata": {"labels": {"team": "a"}}})  # other changes of the Namespace pass


def test_the_role_edit_cannot_write_a_ceiling(tenant: Tenant, admitted: str, ceil: Callable[..., None]) -> None:
    ceil(max_priority="be")
    user = f'User "system:serviceaccount:{admitted}:default" cannot '
    for value in ("hp", None):
        marks = {"metadata": {"annotations": {"orion/max-priority": value}}}
        assert f"{user}patch resource" in said(tenant.core.patch_namespace, admitted, marks)
    assert f"{user}update resource" in said(tenant.core.replace_namespace, admitted, {"metadata": {"name": admitted}})
    assert f"{user}patch resource" in said(tenant.core.patch_namespace_status, admitted, {"metadata": {"labels": {}}})
    assert f"{user}delete resource" in said(tenant.core.delete_namespace, admitted)
