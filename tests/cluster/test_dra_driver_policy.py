"""The policy that restricts DRA drivers to their node's slices, at a real API server, with real tokens of pods."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from testbed.access import Access
from tests.cluster.conftest import FakeNode, client_for
from tests.cluster.refusals import refusal
from tests.cluster.rights import bind
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

FILES = Path(__file__).parents[2] / "charts" / "orion" / "files" / "dra"
ACCOUNT = "orion-dra-driver"
SLICES: dict[str, str] = {"group": "resource.k8s.io", "version": "v1", "plural": "resourceslices"}

Writer = Callable[[str], client.CustomObjectsApi]


@pytest.fixture
def policy(api: client.ApiClient) -> Iterator[None]:
    admission = client.AdmissionregistrationV1Api(api)
    definition, binding = yaml.safe_load_all((FILES / "driver-policy.yaml").read_text())
    admission.create_validating_admission_policy(definition)
    admission.create_validating_admission_policy_binding(binding)
    yield
    admission.delete_validating_admission_policy_binding(binding["metadata"]["name"])
    admission.delete_validating_admission_policy(definition["metadata"]["name"])


@pytest.fixture
def writer(api: client.ApiClient, namespace: str, control_plane: Access, tmp_path: Path) -> Iterator[Writer]:
    """A driver's client with the token of its pod on a node; for the node "", the token belongs to no pod."""
    core, opened = client.CoreV1Api(api), []
    core.create_namespaced_service_account(namespace, {"metadata": {"name": ACCOUNT}})
    bind(api, FILES / "driver-role.yaml", f"system:serviceaccount:{namespace}:{ACCOUNT}", namespace)

    def make(node: str) -> client.CustomObjectsApi:
        wanted: dict[str, Any] = {"expirationSeconds": 3600}
        if node:
            spec = {"nodeName": node, "serviceAccountName": ACCOUNT, "containers": [{"name": "it", "image": "none"}]}
            pod = core.create_namespaced_pod(namespace, {"metadata": {"generateName": "driver-"}, "spec": spec})
            wanted["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod.metadata.name}
        made = core.create_namespaced_service_account_token(ACCOUNT, namespace, {"spec": wanted})
        path = control_plane.kubeconfig_with(made.status.token, tmp_path / f"{uuid.uuid4().hex}.kubeconfig")
        opened.append(client_for(path))
        return client.CustomObjectsApi(opened[-1])

    yield make
    for each in opened:
        each.close()


def slot(name: str, node: str, driver: str = "orion.gpu") -> dict[str, Any]:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]}
    metadata = {"name": name}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def test_a_driver_writes_the_slices_of_its_node_alone(
    api: client.ApiClient, policy: None, writer: Writer, fake_node: FakeNode, kubeconfig_for: Callable[..., Path]
) -> None:
    here, there = fake_node("here"), fake_node("there")
    own, nobody, administrator = writer(here), writer(""), client.CustomObjectsApi(api)

    def create(objects: client.CustomObjectsApi, body: dict[str, Any]) -> str:
        why = refusal(objects.create_cluster_custom_object, **SLICES, body=body)
        if not why:
            administrator.delete_cluster_custom_object(**SLICES, name=body["metadata"]["name"])
        return why

    # The API server enforces a new policy after about a second.
    eventually(lambda: "only ResourceSlices of orion.gpu for that node" in create(own, slot(f"a-{there}", there)))
    assert create(own, slot(f"a-{here}", here)) == ""
    assert "only ResourceSlices of orion.gpu" in create(own, slot(f"b-{here}", here, "gpu.nvidia.com"))
    assert "names no node" in create(nobody, slot(f"c-{here}", here))

    administrator.create_cluster_custom_object(**SLICES, body=slot(f"d-{there}", there))
    assert "only ResourceSlices" in refusal(own.delete_cluster_custom_object, **SLICES, name=f"d-{there}")
    administrator.delete_cluster_custom_object(**SLICES, name=f"d-{there}")


def test_a_driver_cannot_do_more(api: client.ApiClient, writer: Writer, fake_node: FakeNode, namespace: str) -> None:
    objects = writer(fake_node("here"))
    core = client.CoreV1Api(objects.api_client)
    claims: dict[str, str] = {**SLICES, "plural": "resourceclaims"}
    forbidden: list[Callable[[], object]] = [
        lambda: core.list_pod_for_all_namespaces(),
        lambda: core.list_namespaced_secret(namespace),
        lambda: core.list_node(),
        lambda: objects.list_cluster_custom_object(**claims),
        lambda: objects.patch_namespaced_custom_object(**claims, namespace=namespace, name="c", body={}),
        lambda: objects.patch_namespaced_custom_object_status(**claims, namespace=namespace, name="c", body={}),
        lambda: objects.create_cluster_custom_object(**{**SLICES, "plural": "deviceclasses"}, body={}),
    ]
    for call in forbidden:
        with pytest.raises(client.ApiException) as refused:
            call()
        assert refused.value.status == 403
