"""The API types at a real API server: it accepts the schemas and their rules, and refuses invalid objects."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from orion.crds import generate
from orion.crds.metadata import Metadata
from orion.crds.profile import GPU, Duration, GPUProfile, Kernel, ProfileSpec, Source
from orion.crds.profile_file import format_profile
from tests.cluster import api_types
from tests.crds.merge import patched

pytestmark = pytest.mark.cluster

TABLE = yaml.safe_load((Path(__file__).parents[1] / "crds" / "invalid_shares.yaml").read_text(encoding="utf-8"))
EXAMPLE = Path(__file__).parents[2] / "examples" / "gpushare.yaml"
UUID = "GPU-5e4f6a2c-0d1b-4c3a-9f8e-7b6a5d4c3b2a"
API = ("orion.gpu", "v1alpha1")


@pytest.fixture(scope="module")
def objects(api: client.ApiClient) -> client.CustomObjectsApi:
    """A client for the API types; the API server serves them."""
    api_types.establish(api)
    return client.CustomObjectsApi(api)


class Shares:
    """The shares of one namespace."""

    def __init__(self, objects: client.CustomObjectsApi, namespace: str) -> None:
        self._objects, self._where = objects, (*API, namespace, "gpushares")

    def create(self, share: dict[str, Any], **options: Any) -> Any:
        return self._objects.create_namespaced_custom_object(*self._where, share, field_validation="Strict", **options)

    def patch(self, name: str, patch: dict[str, Any]) -> Any:
        return self._objects.patch_namespaced_custom_object(
            *self._where, name, patch, field_validation="Strict", _content_type="application/merge-patch+json"
        )

    def patch_status(self, name: str, patch: dict[str, Any]) -> Any:
        return self._objects.patch_namespaced_custom_object_status(
            *self._where, name, patch, field_validation="Strict", _content_type="application/merge-patch+json"
        )


@pytest.fixture
def shares(objects: client.CustomObjectsApi, namespace: str) -> Shares:
    return Shares(objects, namespace)


def refusal(error: client.ApiException) -> str:
    """Return the API server's message."""
    message: str = json.loads(error.body)["message"]
    return message


@pytest.mark.parametrize("kind", generate.KINDS, ids=lambda kind: kind.name)
def test_a_definition_is_established_and_fully_structural(
    objects: client.CustomObjectsApi, api: client.ApiClient, kind: Any
) -> None:
    found: Any = client.ApiextensionsV1Api(api).read_custom_resource_definition(kind.full_name)
    conditions = {each.type: each.status for each in found.status.conditions}
    assert conditions == {"Established": "True", "NamesAccepted": "True"}


@pytest.mark.parametrize("name", TABLE["valid"])
def test_a_valid_share_is_accepted(shares: Shares, name: str) -> None:
    shares.create(TABLE["valid"][name])


def test_every_invalid_share_is_refused_with_a_sentence_that_names_the_field(shares: Shares) -> None:
    wrong = []
    for case in TABLE["invalid"]:
        try:
            shares.create(patched(TABLE["valid"][case["of"]], case["patch"]), dry_run="All")
            wrong.append(f"{case['name']}: accepted")
        except client.ApiException as error:
            text = refusal(error)
            if error.status not in (400, 422) or not re.search(rf"{re.escape(case['field'])}(?![A-Za-z])", text):
                wrong.append(f"{case['name']}: {error.status} {text}")
            if "no such overload" in text or "evaluat" in text:
                wrong.append(f"{case['name']}: a rule fails instead of answering: {text}")
    assert wrong == []


def test_defaults_are_filled_in(shares: Shares) -> None:
    spec = {"priority": "hp", "tuning": {"linger": {"ceiling": "3ms"}}, "slo": {"latency": "20ms"}}
    made = shares.create({**TABLE["valid"]["hp"], "spec": spec})["spec"]
    assert made == {
        "priority": "hp",
        "failClosed": False,
        "tuning": {"linger": {"floor": "50us", "ceiling": "3ms"}},
        "slo": {"latency": "20ms", "percentile": 99},
    }


def test_the_priority_of_a_share_cannot_be_changed(shares: Shares) -> None:
    shares.create(TABLE["valid"]["be"])
    with pytest.raises(client.ApiException) as refused:
        shares.patch("train", {"spec": {"priority": "hp", "compute": None}})
    assert "spec.priority cannot be changed" in refusal(refused.value)
    assert shares.patch("train", {"spec": {"compute": {"request": 0.3}}})["spec"]["compute"] == {"request": 0.3}


def test_a_strict_write_with_an_unknown_field_is_refused(shares: Shares) -> None:
    share = patched(TABLE["valid"]["be"], {"spec": {"compuet": {}}})
    with pytest.raises(client.ApiException) as refused:
        shares.create(share)
    assert "spec.compuet" in refusal(refused.value)


def test_status_is_a_subresource(shares: Shares) -> None:
    generation = shares.create(TABLE["valid"]["be"])["metadata"]["generation"]
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Granted",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": generation,
    }
    status = {"observedGeneration": generation, "conditions": [condition], "pods": {"governed": 3}}
    assert "status" not in shares.patch("train", {"status": status})
    written = shares.patch_status("train", {"status": status, "spec": {"compute": {"request": 0.7}}})
    assert written["metadata"]["generation"] == generation
    assert written["spec"]["compute"] == {"request": 0.2}
    assert written["status"]["conditions"] == [condition]
    assert written["status"]["pods"] == {
        "governed": 3, "running": 0, "parked": 0, "granted": 0, "unannotated": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"conditions": [{"type": "Ready", "status": "Maybe"}]}, "status.conditions[0]"),
        ({"clients": [{"slot": "be-0", "priority": "be", "processId": n} for n in range(65)]}, "status.clients"),
        ({"pods": {"governed": -1}}, "status.pods.governed"),
    ],
)
def test_a_status_is_checked_and_bounded(shares: Shares, status: dict[str, Any], field: str) -> None:
    shares.create(TABLE["valid"]["be"])
    with pytest.raises(client.ApiException) as refused:
        shares.patch_status("train", {"status": status})
    assert field in refusal(refused.value)


def test_a_gpu_is_named_by_its_uuid_and_has_a_spec_from_the_start(objects: client.CustomObjectsApi) -> None:
    gpu = {"apiVersion": "orion.gpu/v1alpha1", "kind": "GPUDevice", "metadata": {"name": UUID.lower()}}
    made = objects.create_cluster_custom_object(*API, "gpudevices", gpu, dry_run="All", field_validation="Strict")
    assert made["spec"] == {"cordon": False, "mode": "timeslice"}
    for patch, field in (
        ({"metadata": {"name": "gpu-0"}}, "metadata.name"),
        ({"spec": {"mode": "mig"}}, "spec.mode"),
        ({"spec": {"cordon": "yes"}}, "spec.cordon"),
    ):
        with pytest.raises(client.ApiException) as refused:
            objects.create_cluster_custom_object(
                *API, "gpudevices", patched(gpu, patch), dry_run="All", field_validation="Strict"
            )
        assert field in refusal(refused.value)


def test_a_profile_that_the_command_line_writes_is_accepted(objects: client.CustomObjectsApi, kubectl: Any) -> None:
    kernel = Kernel(
        name="a", grid=(4, 2, 1), block=(256, 1, 1), launches=3, duration_ns=Duration(median=1.5, p95=2), total_share=1
    )
    spec = ProfileSpec(gpu=GPU(model="NVIDIA H200"), source=Source(kind="cupti"), kernels=[kernel])
    profile = GPUProfile(metadata=Metadata(name="serve"), spec=spec)
    kubectl("create", "--validate=strict", "-f", "-", given=format_profile(profile))
    head, row = kubectl("get", "gprof").splitlines()
    assert head.split() == ["NAME", "GPU", "SOURCE", "AGE"]
    assert row.split()[:4] == ["serve", "NVIDIA", "H200", "cupti"]


def test_kubectl_explains_and_prints_the_columns(shares: Shares, kubectl: Any) -> None:
    shares.create(TABLE["valid"]["hp"])
    head, row = kubectl("get", "gs").splitlines()
    assert head.split() == ["NAME", "PRIORITY", "MEMORY", "PODS", "CLIENTS", "READY", "REASON", "AGE"]
    assert row.split()[:3] == ["serve", "hp", "8Gi"]
    assert "Default: 1," in " ".join(kubectl("explain", "gpushare.spec.maxSlowdown").split())
    assert "serve" in kubectl("get", "orion")


def test_the_example_is_accepted(shares: Shares, kubectl: Any) -> None:
    assert kubectl("apply", "--server-side", "-f", EXAMPLE)
