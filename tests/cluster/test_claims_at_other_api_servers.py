"""API servers with other features than the usual one: they drop fields of slices, or add tolerations."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from orion.crds.claims import CLAIM
from testbed.control_plane import ControlPlane
from tests.cluster.conftest import client_for
from tests.cluster.rights import bind
from tests.dra_driver.driver_node import DriverNode
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

ROLE = Path(__file__).parents[2] / "charts" / "orion" / "files" / "dra" / "driver-role.yaml"
USER = "system:serviceaccount:default:orion-dra-driver"
SLICES: dict[str, str] = {"group": "resource.k8s.io", "version": "v1", "plural": "resourceslices"}
NODE = "node-1"
TOO_OLD = ("--emulated-version=1.35",)
""" The first version in which GPUs that pods share are not behind an alpha feature is 1.36. """
TOLERATES = ("--enable-admission-plugins=NodeRestriction,ExtendedResourceToleration",)


@pytest.fixture
def api(own_control_plane: ControlPlane) -> Iterator[client.ApiClient]:
    with client_for(own_control_plane.access.kubeconfig) as administrator:
        yield administrator


@pytest.fixture
def node(
    own_control_plane: ControlPlane, api: client.ApiClient, socket_folder: Path, tmp_path: Path
) -> Iterator[DriverNode]:
    client.CoreV1Api(api).create_node({"metadata": {"name": NODE}})
    bind(api, ROLE, USER, "default")
    made = DriverNode(socket_folder, own_control_plane.access.kubeconfig_for(USER, [], tmp_path / "driver.kubeconfig"))
    made.metrics_address = "127.0.0.1:0"
    made.begin_agent()
    yield made
    made.close()


def test_an_api_server_that_drops_fields_gets_no_slice_and_one_that_stores_them_gets_it(
    own_control_plane: ControlPlane, api: client.ApiClient, node: DriverNode
) -> None:
    """The limit: before 1.36 each GPU would be for one pod alone. Log, readiness, Event and metric say so."""
    own_control_plane.restart("kube-apiserver", options=TOO_OLD)
    node.begin_unfound_driver()
    withheld = 'orion_dra_driver_withheld{reason="SliceFieldsDropped"}'

    def stored() -> list[dict[str, Any]]:
        return list(client.CustomObjectsApi(api).list_cluster_custom_object(**SLICES)["items"])

    def reasons() -> list[str]:
        found = client.CoreV1Api(api).list_namespaced_event("default").items
        return [each.reason for each in found if each.reporting_component == "orion.gpu/dra-driver"]

    eventually(lambda: reasons() == ["SliceFieldsDropped"], f"an Event of the node: {node.log('driver')}")
    eventually(lambda: f"{withheld} 1.0" in node.ask("driver", "/metrics")[1], "the metric")
    assert "it needs Kubernetes 1.36 or later" in node.log("driver")
    assert stored() == []

    own_control_plane.restart("kube-apiserver")
    eventually(stored, "the slice")
    eventually(lambda: f"{withheld} 0.0" in node.ask("driver", "/metrics")[1], "the metric")


def test_pods_with_claims_get_no_toleration_of_the_nodes_taints(
    own_control_plane: ControlPlane, api: client.ApiClient
) -> None:
    """The limit: the API server adds tolerations for resources by name alone. For claims, Orion's webhook does it."""
    own_control_plane.restart("kube-apiserver", options=TOLERATES)
    core = client.CoreV1Api(api)

    def tolerated(resources: dict[str, Any], **spec: Any) -> list[str]:
        body = {
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "main", "image": "none"} | resources]} | spec,
        }
        made = core.create_namespaced_pod("default", body, dry_run="All")
        return [each.key for each in made.spec.tolerations or () if "node.kubernetes.io" not in each.key]

    by_name = tolerated({"resources": {"limits": {"nvidia.com/gpu": "1"}}})
    assert by_name == ["nvidia.com/gpu"]
    claim = {"name": CLAIM, "resourceClaimName": "train"}
    assert tolerated({"resources": {"claims": [{"name": CLAIM, "request": "main"}]}}, resourceClaims=[claim]) == []
