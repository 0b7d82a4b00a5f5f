"""A user who applies an annotation or label of Orion that has no effect gets a warning; the API server is real."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client

from tests.cluster.admitted_pods import pod
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

KINDS = {
    "Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "ReplicaSet": "apps/v1",
    "Job": "batch/v1", "CronJob": "batch/v1",
}  # fmt: skip
ALLOWED = "orion/priority (hp or be), orion/share (the name of a GPUShare) and orion/containers"
MISSPELT = {"annotations": {"orion/priorty": "hp"}}
RIGHT = {"annotations": {"orion/priority": "hp", "orion/share": "s", "orion/containers": "main", "team/x": "y"}}

Warnings = Callable[[dict[str, Any]], str]


@pytest.fixture
def warnings(api: client.ApiClient, admitted: str) -> Warnings:
    """The API server's warnings for a dry-run creation, once the policy applies."""

    def reported(made: dict[str, Any]) -> str:
        group = made["apiVersion"]
        path = f"/{'api' if group == 'v1' else 'apis'}/{group}/namespaces/{admitted}/{made['kind'].lower()}s?dryRun=All"
        answer = api.call_api("POST", api.configuration.host + path, {"Content-Type": "application/json"}, made)
        body = answer.read()
        assert answer.status == 201, body
        return "\n".join(answer.response.headers.getlist("Warning"))

    eventually(lambda: "orion/priorty" in reported(pod("probe", annotations=MISSPELT["annotations"])))
    return reported


def made(kind: str, template: dict[str, Any], own: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return an object of a kind that makes pods.

    Args:
        kind: the kind, such as Deployment.
        template: metadata of the pods' template, beside a label.
        own: metadata of the object itself, beside its name.
    """
    meta = {**template, "labels": {"app": "x", **template.get("labels", {})}}
    restart = {} if KINDS[kind].startswith("apps") else {"restartPolicy": "Never"}
    pods = {"metadata": meta, "spec": {"containers": [{"name": "main", "image": "x/y:1"}], **restart}}
    spec: dict[str, Any] = {"template": pods}
    if KINDS[kind].startswith("apps"):
        spec["selector"] = {"matchLabels": {"app": "x"}}
    if kind == "CronJob":
        spec = {"schedule": "@yearly", "jobTemplate": {"spec": spec}}
    return {"apiVersion": KINDS[kind], "kind": kind, "metadata": {"name": "made", **(own or {})}, "spec": spec}


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        (MISSPELT, "Orion does not know the annotation orion/priorty"),
        ({"annotations": {"orion/memory": "8Gi"}}, "Orion does not know the annotation orion/memory"),
        (
            {"annotations": {"orion.gpu/priority": "hp"}},
            "annotation orion.gpu/priority has no effect: Orion alone writes",
        ),
        ({"labels": {"orion/priority": "hp"}}, "label orion/priority has no effect: Orion reads annotations"),
        ({"labels": {"orion.gpu/priority": "hp"}}, "label orion.gpu/priority has no effect: Orion reads annotations"),
    ],
    ids=["misspelt", "of a GPUShare", "of Orion", "as a label", "of Orion, as a label"],
)
def test_pods_and_all_kinds_that_make_pods_get_a_warning(
    warnings: Warnings, metadata: dict[str, Any], sentence: str
) -> None:
    for kind in KINDS:
        assert sentence in (reported := warnings(made(kind, metadata))), kind
        assert ALLOWED in reported, kind
    one = pod("one")
    one["metadata"] |= metadata
    assert sentence in warnings(one)


@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_annotations_on_the_object_around_the_template_get_a_warning(warnings: Warnings, where: str) -> None:
    for kind in KINDS:
        reported = warnings(made(kind, {}, {where: {"orion/priority": "hp"}}))
        place = "spec.jobTemplate.spec.template" if kind == "CronJob" else "spec.template"
        assert f"of the {kind} itself have no effect" in reported, kind
        assert f"move them to {place}.metadata.annotations" in reported, kind
    between = made("CronJob", {})
    between["spec"]["jobTemplate"]["metadata"] = {where: {"orion/priority": "hp"}}
    assert "have no effect" in warnings(between)


def test_a_value_that_the_webhook_will_refuse_gets_a_warning(warnings: Warnings) -> None:
    for kind in KINDS:
        reported = warnings(made(kind, {"annotations": {"orion/priority": "high"}}))
        assert "annotation orion/priority must be hp or be, not high" in reported, kind


def test_valid_names_get_no_warning(warnings: Warnings) -> None:
    for kind in KINDS:
        assert warnings(made(kind, RIGHT)) == "", kind
        assert warnings(made(kind, {})) == "", kind
    assert warnings(pod("one", "be")) == ""


def test_the_expressions_have_no_type_errors_for_any_kind(api: client.ApiClient, warnings: Warnings) -> None:
    """The API server reports type errors of a policy's expressions for each kind in the policy's status."""
    del warnings
    policies = client.AdmissionregistrationV1Api(api)

    def checked() -> bool:
        found = policies.list_validating_admission_policy(_preload_content=False)
        ours = [each for each in json.loads(found.data)["items"] if "names-have-an-effect" in each["metadata"]["name"]]
        assert ours
        for each in ours:
            assert "expressionWarnings" not in each.get("status", {}).get("typeChecking", {}), each["status"]
        return all("typeChecking" in each.get("status", {}) for each in ours)

    eventually(checked)
