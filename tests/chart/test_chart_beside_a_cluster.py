"""What the chart reads from a cluster, and what an upgrade does not change.

The tests use Helm and a real API server without kubelets, so no pods run. Each test has its own control plane, because
the chart creates cluster-wide objects.
"""

import base64
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from orion.crds.model import API_VERSION
from testbed import helm
from testbed.control_plane import ControlPlane
from testbed.errors import Failed
from tests.chart.rendered_chart import NAMESPACE, PEM
from tests.cluster import api_types
from tests.cluster.conftest import client_for, own_control_plane, programs  # noqa: F401 - fixtures
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

SECRET = "orion-webhook-certificate"
DEFINITION = "gpushares.orion.gpu"
DEVICES = ("orion.gpu", "v1alpha1", "gpudevices")
GPU = "gpu-5e4f6a2c-0d1b-4c3a-9f8e-7b6a5d4c3b2a"


class Installation:
    """A release of the chart, and its cluster as an administrator sees it."""

    def __init__(self, plane: ControlPlane) -> None:
        self.kubeconfig, self.api = plane.access.kubeconfig, client_for(plane.access.kubeconfig)
        self.core, self.admission = client.CoreV1Api(self.api), client.AdmissionregistrationV1Api(self.api)
        self.definitions = client.ApiextensionsV1Api(self.api)

    def helm(self, *arguments: str, values: Mapping[str, Any] | None = None, chart: Path = helm.CHART) -> str:
        """Run Helm in the release's namespace; if there are values, with the chart and these values."""
        given = [] if values is None else [str(chart), "--values", "-"]
        command = [*arguments, *given, "--namespace", NAMESPACE]
        return helm.run(*command, kubeconfig=self.kubeconfig, given=json.dumps(values or {}))

    def notes(self, **values: Any) -> str:
        """Return the notes of an installation."""
        said = self.helm("install", "orion", "--dry-run=server", "--create-namespace", values=values)
        return said.partition("NOTES:")[2]

    def refused(self, values: Mapping[str, Any], release: str = "orion", command: str = "install") -> str:
        """Return the error of a rejected installation or upgrade."""
        with pytest.raises(Failed, match="This installation cannot work") as refused:
            self.helm(command, release, "--dry-run=server", values=values)
        return str(refused.value)

    def upgradable(self, values: Mapping[str, Any]) -> None:
        """Try an upgrade.

        Raises:
            Failed: the upgrade is rejected.
        """
        self.helm("upgrade", "orion", "--dry-run=server", values=values)

    def gpu(self) -> None:
        """Create a GPUDevice without a status."""
        body = {"apiVersion": "orion.gpu/v1alpha1", "kind": "GPUDevice", "metadata": {"name": GPU}, "spec": {}}
        client.CustomObjectsApi(self.api).create_cluster_custom_object(*DEVICES, body)

    def gpu_is(self, node: str, mode: str) -> None:
        """Write the GPUDevice's status as its agent does."""
        said = {"status": {"node": node, "mode": mode}}
        client.CustomObjectsApi(self.api).patch_cluster_custom_object_status(*DEVICES, GPU, said)

    def node(self, name: str, labels: Mapping[str, str], amounts: Mapping[str, str]) -> None:
        """Create a node without a kubelet."""
        self.core.create_node({"metadata": {"name": name, "labels": dict(labels)}})
        self.core.patch_node_status(name, {"status": {"allocatable": dict(amounts), "capacity": dict(amounts)}})


@pytest.fixture
def installation(own_control_plane: ControlPlane) -> Installation:  # noqa: F811
    """A cluster without Orion."""
    return Installation(own_control_plane)


def test_refusals_and_notes_depend_on_the_cluster(installation: Installation) -> None:
    assert "cert-manager is not installed" in installation.refused({"certificates": {"source": "cert-manager"}})
    monitored = {"monitoring": {"serviceMonitor": {"enabled": True}}, "networkPolicy": {"enabled": False}}
    assert "no ServiceMonitors" in installation.refused(monitored)
    assert 'no runtime class "nvidia"' in installation.refused({"webhook": {"runtimeClassName": "nvidia"}})
    assert "does not have gpudevices.orion.gpu" in installation.refused({"crds": {"install": False}})
    # Notes for a cluster in which no node has opted in, and for one in which another plugin advertises the GPUs.
    installation.node("plain", {}, {"cpu": "1"})
    assert "kubectl label node NODE orion/enabled=true" in installation.notes()
    assert "NO NODE HAS OPTED IN" not in installation.notes(simulatedGPUs=2)
    installation.node("gpus", {"orion/enabled": "true"}, {"nvidia.com/gpu": "8"})
    notes = installation.notes()
    assert "NO NODE HAS OPTED IN" not in notes
    assert "Another plugin advertises the GPUs of gpus" in notes
    assert "Another plugin" not in installation.notes(nodeConfiguration={"coexist": True})
    given = {"source": "given", "given": {"secretName": "mine", "caBundle": PEM}}
    assert "THE SECRET mine IS NOT THERE" in installation.notes(certificates=given)


def test_upgrade_rollback_and_uninstall_keep_the_objects_that_they_must_keep(
    installation: Installation, tmp_path: Path
) -> None:
    installation.helm("install", "orion", "--create-namespace", values={"simulatedGPUs": 1})
    assert 'by release "orion" of namespace' in installation.refused({}, release="another")
    filled = _as_the_operator_does(installation)
    newer = _with_a_new_field(tmp_path)

    installation.helm("upgrade", "orion", values={"simulatedGPUs": 2, "certificates": {}}, chart=newer)
    assert _kept(installation) == filled
    assert "newer" in _fields(installation)

    installation.helm("rollback", "orion")
    assert _kept(installation) == filled
    assert "newer" not in _fields(installation)

    installation.helm("uninstall", "orion", "--no-hooks")
    left = [each.metadata.name for each in installation.definitions.list_custom_resource_definition().items]
    assert DEFINITION in left
    roles = client.RbacAuthorizationV1Api(installation.api).list_cluster_role().items
    assert not [each for each in roles if each.metadata.name.startswith("orion")]
    assert not installation.admission.list_mutating_webhook_configuration().items
    assert not installation.admission.list_validating_admission_policy().items
    assert not installation.core.list_namespaced_secret(NAMESPACE).items
    assert not client.CoordinationV1Api(installation.api).list_namespaced_lease(NAMESPACE).items

    installation.helm("install", "orion", values={"crds": {"keep": False}})
    installation.helm("uninstall", "orion", "--no-hooks")
    # The API server deletes a definition only some time later, so this checks that the deletion has begun.
    for going in installation.definitions.list_custom_resource_definition().items:
        assert going.metadata.deletion_timestamp, going.metadata.name
        assert going.metadata.finalizers == ["customresourcecleanup.apiextensions.k8s.io"]


def test_an_upgrade_that_would_destroy_objects_is_rejected(installation: Installation) -> None:
    there = {"mps": {"enabled": True}, "crds": {"keep": False}}
    installation.helm("install", "orion", "--create-namespace", values=there)
    eventually(lambda: "gpudevices" in api_types.served(installation.api, API_VERSION))
    _no_clients_of_an_mps_daemon_end(installation, there)

    # With other names, the upgrade would create a second set of objects beside the running one.
    renamed = installation.refused({**there, "fullnameOverride": "gpus"}, command="upgrade")
    assert 'names of this release begin with "orion" and would begin with "gpus"' in renamed

    # Without the definitions, the upgrade would delete the shares of all users.
    without = {**there, "crds": {"install": False}}
    refused = installation.refused(without, command="upgrade")
    assert "this upgrade would delete it" in refused
    assert "crds.keep=true" in refused
    installation.helm("upgrade", "orion", values={**there, "crds": {"keep": True}})
    installation.helm("upgrade", "orion", values=without)
    assert installation.definitions.read_custom_resource_definition(DEFINITION)


def _no_clients_of_an_mps_daemon_end(installation: Installation, there: Mapping[str, Any]) -> None:
    labels = {"kubernetes.io/os": "linux", "orion/enabled": "true", "pool": "gpus"}
    installation.node("a", labels, {"cpu": "1"})
    without, elsewhere = {**there, "mps": {"enabled": False}}, {**there, "node": {"nodeSelector": {"pool": "none"}}}
    installation.gpu()
    installation.gpu_is("a", "timeslice")
    for harmless in (without, elsewhere):
        installation.upgradable(harmless)
    installation.gpu_is("a", "mps")
    for ends, why in ((without, "mps.enabled=false ends"), (elsewhere, "no longer chooses node a")):
        refused = installation.refused(ends, command="upgrade")
        assert f"GPU {GPU} is in the mode mps" in refused
        assert why in refused
        assert f"kubectl patch gpudevice {GPU}" in refused
    installation.upgradable(there)
    installation.upgradable({**there, "node": {"nodeSelector": {"pool": "gpus"}}})
    installation.core.patch_node("a", {"metadata": {"labels": {"orion/enabled": None}}})
    installation.upgradable(without)  # the daemon is gone
    installation.gpu_is("gone", "mps")  # its node is gone, and no agent reports it any more
    installation.upgradable(without)


def test_a_change_of_allocation_that_would_leave_pods_alone_is_rejected(installation: Installation) -> None:
    values: dict[str, dict[str, Any]] = {name: {"allocation": name} for name in ("device-plugin", "dra", "by-node")}
    installation.helm("install", "orion", "--create-namespace", values=values["by-node"])
    eventually(lambda: "gpudevices" in api_types.served(installation.api, API_VERSION))
    installation.gpu()
    objects = client.CustomObjectsApi(installation.api)

    def refused(to: str) -> str:
        return installation.refused(values[to], command="upgrade")

    for giver, other in (("dra", "device-plugin"), ("device-plugin", "dra")):
        held = {"name": "be-0", "priority": "be", "pod": {"namespace": "n", "name": "train"}}
        status = {"status": {"node": "a", "allocation": giver, "heldSlots": [held]}}
        objects.patch_cluster_custom_object_status(*DEVICES, GPU, status)
        assert f"(n/train has be-0), and allocation would change from by-node to {other}" in refused(other)
        installation.upgradable(values[giver])
        installation.upgradable(values["by-node"])
    objects.patch_cluster_custom_object_status(*DEVICES, GPU, {"status": {"heldSlots": None}})
    installation.upgradable(values["device-plugin"])

    one = {"name": "gpu", "exactly": {"deviceClassName": "orion-be"}}
    spread = {"name": "gpu", "firstAvailable": [{"name": "any", "deviceClassName": "orion-be"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "uid-gone"}
    for name, owners, request in (("mine", [], one), ("spread", [], spread), ("followed", [pod], one)):
        claim = {"metadata": {"name": name, "ownerReferences": owners}, "spec": {"devices": {"requests": [request]}}}
        objects.create_namespaced_custom_object("resource.k8s.io", "v1", "default", "resourceclaims", claim)
    for name in ("mine", "spread"):
        assert f"ResourceClaim default/{name} asks for a GPU of Orion" in refused("device-plugin")
        installation.upgradable(values["dra"])
        objects.delete_namespaced_custom_object("resource.k8s.io", "v1", "default", "resourceclaims", name)
    installation.upgradable(values["device-plugin"])  # the other claim's pod is gone


def _as_the_operator_does(installation: Installation) -> tuple[Any, ...]:
    """Write the objects that the operator writes instead of the chart; return them as the API server stored them."""
    data = {"tls.crt": base64.b64encode(b"leaf").decode(), "ca.key": base64.b64encode(b"key").decode()}
    installation.core.patch_namespaced_secret(SECRET, NAMESPACE, {"data": data})
    bundle = {"webhooks": [{"name": "pods.webhook.orion.gpu", "clientConfig": {"caBundle": _base64(PEM)}}]}
    installation.admission.patch_mutating_webhook_configuration("orion", bundle)
    leases = client.CoordinationV1Api(installation.api)
    leases.patch_namespaced_lease("orion-operator", NAMESPACE, {"spec": {"holderIdentity": "one"}})
    return _kept(installation)


def _kept(installation: Installation) -> tuple[Any, ...]:
    """Return what an upgrade must not change."""
    (webhook,) = installation.admission.read_mutating_webhook_configuration("orion").webhooks
    lease = client.CoordinationV1Api(installation.api).read_namespaced_lease("orion-operator", NAMESPACE)
    data = installation.core.read_namespaced_secret(SECRET, NAMESPACE).data
    kept = (data, webhook.client_config.ca_bundle, lease.spec.holder_identity)
    assert all(kept)
    return kept


def _with_a_new_field(folder: Path) -> Path:
    """Return a copy of the chart whose GPUShare has one more field, as in a newer version."""
    copy = folder / "orion"
    shutil.copytree(helm.CHART, copy)
    path = copy / "files" / "crds" / "gpushares.yaml"
    definition = yaml.safe_load(path.read_text())
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["newer"] = {"type": "string"}
    path.write_text(yaml.safe_dump(definition))
    return copy


def _fields(installation: Installation) -> set[str]:
    """Return the names of the fields of a GPUShare's spec that the API server knows."""
    found = installation.definitions.read_custom_resource_definition(DEFINITION)
    schema = found.spec.versions[0].schema.open_apiv3_schema
    return set(schema.properties["spec"].properties)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
