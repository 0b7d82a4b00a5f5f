"""What ResourceClaims and templates may ask of Orion's classes, by the chart's policy at a real API server."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from orion.crds.claims import CLASSES, SLOTS, ClaimShape
from orion.crds.places import PLACES_MAX
from orion.crds.policy import Priority
from tests.cluster.conftest import client_for
from tests.cluster.refusals import refusal
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

FILES = Path(__file__).parents[2] / "charts" / "orion" / "files" / "dra"
GROUP: dict[str, str] = {"group": "resource.k8s.io", "version": "v1"}
TEMPLATE = "ResourceClaimTemplate"
HP, BE = {"hpSlots": "1", "beSlots": "0"}, {"hpSlots": "0", "beSlots": "1"}

Create = Callable[[dict[str, Any]], str]


@pytest.fixture
def tenant(api: client.ApiClient, namespace: str, kubeconfig_for: Callable[..., Path]) -> Iterator[client.ApiClient]:
    """A user with Kubernetes' role `edit` in the namespace."""
    user = f"tenant-{namespace}"
    bound = {
        "metadata": {"name": "edit"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    client.RbacAuthorizationV1Api(api).create_namespaced_role_binding(namespace, bound)
    with client_for(kubeconfig_for(user)) as opened:
        yield opened


@pytest.fixture
def create(api: client.ApiClient, tenant: client.ApiClient, namespace: str) -> Iterator[Create]:
    """Create claims and templates from the `devices` of a claim, as a tenant; return why it was refused."""
    admission, objects = client.AdmissionregistrationV1Api(api), client.CustomObjectsApi(tenant)
    definition, binding = yaml.safe_load_all((FILES / "claims-policy.yaml").read_text())
    # Tests run side by side on one API server, so each has the policy for its own namespace.
    name = f"{definition['metadata']['name']}-{namespace}"
    definition["metadata"]["name"] = binding["metadata"]["name"] = binding["spec"]["policyName"] = name
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding["spec"]["matchResources"] = {"namespaceSelector": here}
    admission.create_validating_admission_policy(definition)
    admission.create_validating_admission_policy_binding(binding)

    def refusals(devices: dict[str, Any]) -> list[str]:
        found = []
        for kind, spec in (("ResourceClaim", {"devices": devices}), (TEMPLATE, {"spec": {"devices": devices}})):
            body = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"generateName": "c-"}, "spec": spec}
            where = {**GROUP, "namespace": namespace, "plural": f"{kind.lower()}s"}
            found.append(refusal(objects.create_namespaced_custom_object, **where, body=body))
        return found

    def make(devices: dict[str, Any]) -> str:
        found: list[str] = []

        def alike() -> bool:
            found[:] = refusals(devices)
            return bool(found[0]) == bool(found[1])

        eventually(alike, what="claims and templates are treated alike")  # a change counts for both a moment later
        return found[0]

    try:
        # The API server enforces a new policy after about a second.
        eventually(lambda: all("hpSlots" in why for why in refusals(one("orion-hp", BE))), what="the policy counts")
        yield make
    finally:
        admission.delete_validating_admission_policy_binding(name)
        admission.delete_validating_admission_policy(name)


def one(device_class: str, amounts: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    capacity = {"capacity": {"requests": amounts}} if amounts is not None else {}
    exactly = {"deviceClassName": device_class, **capacity, **fields}
    return {"requests": [{"name": "gpu", "exactly": exactly}]}


def test_role_and_slot_must_agree(create: Create) -> None:
    assert create(one("orion-hp", {**HP, "time": "300", "memory": "20Gi"})) == ""
    assert create(one("orion-be", BE)) == ""
    assert create(one("orion-be")) == ""  # the device's default is one be slot
    assert create(one("somebody-elses")) == ""
    for devices in (one("orion-hp"), one("orion-hp", BE), one("orion-be", HP), one("orion-be", {**BE, "beSlots": "2"})):
        assert "each request is one slot" in create(devices)
    alternatives = [{"name": "a", **one("orion-be", BE)["requests"][0]["exactly"]}]
    assert create({"requests": [{"name": "gpu", "firstAvailable": alternatives}]}) == ""
    alternatives.append({"name": "b", **one("orion-hp", BE)["requests"][0]["exactly"]})
    assert "each request is one slot" in create({"requests": [{"name": "gpu", "firstAvailable": alternatives}]})


def test_what_the_operator_makes_is_accepted(create: Create) -> None:
    for priority, places in itertools.product(Priority, (None, PLACES_MAX)):
        shape = ClaimShape(
            priority=priority,
            gpus={"a": 2, "b": 1},
            time_milli=500,
            memory_bytes=1 << 30,
            in_common="orion.gpu/nvlink",
            places=places,
        )
        assert create(shape.template()["spec"]["spec"]["devices"]) == ""


def test_config_of_the_claim_is_refused_and_of_other_drivers_accepted(create: Create) -> None:
    def config(driver: str) -> dict[str, Any]:
        return one("orion-be", BE) | {"config": [{"opaque": {"driver": driver, "parameters": {"role": "hp"}}}]}

    assert "only a DeviceClass may have config" in create(config("orion.gpu"))
    assert create(config("gpu.example.com")) == ""


def test_a_namespace_for_be_alone_gets_no_claim_of_hp(create: Create, api: client.ApiClient, namespace: str) -> None:
    core = client.CoreV1Api(api)
    core.patch_namespace(namespace, {"metadata": {"annotations": {"orion/max-priority": "be"}}})
    eventually(lambda: "above the ceiling of Namespace" in create(one("orion-hp", HP)))
    assert create(one("orion-be", BE)) == ""
    assert create(one("somebody-elses")) == ""
    assert "above the ceiling of Namespace" in create(one("of-an-administrator", HP))


@pytest.mark.parametrize(
    "ceiling", [{"orion/max-memory": "8Gi"}, {"orion/max-time": "0.2"}, {"orion/max-request": "0.1"}]
)
def test_a_namespace_with_ceilings_gets_no_claim_that_a_tenant_wrote(
    create: Create, api: client.ApiClient, namespace: str, ceiling: dict[str, str]
) -> None:
    client.CoreV1Api(api).patch_namespace(namespace, {"metadata": {"annotations": ceiling}})
    (name,) = ceiling
    eventually(lambda: f"has the ceiling {name}" in create(one("orion-be", {**BE, "time": "1000"})))
    assert create(one("somebody-elses")) == ""
    body = ClaimShape(priority=Priority.BE, gpus={"a": 1}).template()
    where = {**GROUP, "namespace": namespace, "plural": "resourceclaimtemplates"}
    client.CustomObjectsApi(api).create_namespaced_custom_object(**where, body=body)  # an administrator may


def test_the_classes_are_those_that_the_code_names() -> None:
    classes = {
        each["metadata"]["name"]: each["spec"] for each in yaml.safe_load_all((FILES / "classes.yaml").read_text())
    }
    assert set(classes) == set(CLASSES.values())
    for priority, name in CLASSES.items():
        assert classes[name]["config"][0]["opaque"]["parameters"] == {"role": str(priority)}
        assert classes[name]["extendedResourceName"] == f"orion.gpu/{priority}"
    for name in ("claims-policy.yaml", "driver-policy.yaml"):
        (rule,) = next(yaml.safe_load_all((FILES / name).read_text()))["spec"]["matchConstraints"]["resourceRules"]
        assert rule["apiVersions"] == ["v1"], "of other versions, a policy would see requests of another form"
    policy = (FILES / "claims-policy.yaml").read_text()
    assert f"'{CLASSES[Priority.HP]}': ['{SLOTS['hp']}', '{SLOTS['be']}']" in policy
