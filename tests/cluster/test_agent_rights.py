"""The node agent needs exactly the rights that the chart ships: the audit log shows none missing and none unused."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes import client

from orion.node_agent.api.client import AgentClient
from tests.cluster import api_types
from tests.cluster.agent_process import DEVICES, GROUP, ROLE, VERSION, AgentNode, ClusterView, grant_rights, machine
from tests.cluster.audited_plane import AuditedPlane, audited_plane, granted
from tests.cluster.conftest import client_for
from tests.cluster.serving_operator import ServingOperator, serving_operator
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

USER = "system:serviceaccount:default:orion-agent"
NODE = "a-node"


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[AuditedPlane]:
    with audited_plane(USER, tmp_path) as plane:
        api_types.establish(plane.api)
        yield plane


@pytest.fixture
def operator(audited: AuditedPlane, tmp_path: Path) -> Iterator[ServingOperator]:
    with serving_operator(audited.api, audited.plane.access.kubeconfig, tmp_path) as made:
        grant_rights(audited.api, made, USER)
        yield made


def test_every_right_is_used_and_none_is_missing(
    audited: AuditedPlane, operator: ServingOperator, c_build: Path
) -> None:
    view, rights = ClusterView(audited.api, "default"), granted(ROLE)
    client.CoreV1Api(audited.api).create_node({"metadata": {"name": NODE}})
    with machine(c_build, operator, NODE, audited.kubeconfig, "rights", view) as node:
        _make_device_of_deleted_node(audited.api, node.uuids[1])
        node.start_agent("--operator-address", "")  # it looks for the operator's Service, which only a node reaches
        eventually(lambda: ("", "services", "get") in audited.asked(), what=node.agent_log)
        node.kill_agent()
        node.start_agent()
        _use_all_rights(view, node)
        eventually(lambda: rights <= audited.asked(), what=f"{rights - audited.asked()} are unused")
    assert audited.asked() == rights
    assert audited.refused() == []


def test_forbidden_requests_are_refused(audited: AuditedPlane, operator: ServingOperator) -> None:
    with client_for(audited.kubeconfig) as agent:
        core, objects = client.CoreV1Api(agent), client.CustomObjectsApi(agent)
        forbidden: list[tuple[Callable[..., object], tuple[object, ...]]] = [
            (core.list_secret_for_all_namespaces, ()),
            (core.list_namespaced_config_map, (operator.namespace,)),
            (core.read_namespaced_config_map, ("another", operator.namespace)),
            (core.patch_namespaced_config_map, ("orion-operator", operator.namespace, {"data": {}})),
            (core.list_pod_for_all_namespaces, ()),
            (core.read_namespaced_pod, ("p", "default")),
            (core.patch_namespaced_pod, ("p", "default", {"metadata": {"annotations": {"a": "b"}}})),
            (core.patch_namespaced_pod_status, ("p", "default", {"metadata": {"annotations": {"a": "b"}}})),
            (core.delete_namespaced_pod, ("p", "default")),
            (core.list_node, ()),
            (core.patch_node, (NODE, {"metadata": {"labels": {"a": "b"}}})),
            (objects.patch_cluster_custom_object, (GROUP, VERSION, DEVICES, "gpu-0", {"spec": {"cordon": False}})),
            (objects.delete_cluster_custom_object, (GROUP, VERSION, DEVICES, "gpu-0")),
            (objects.list_cluster_custom_object, (GROUP, VERSION, "gpushares")),
        ]
        for call, arguments in forbidden:
            with pytest.raises(client.ApiException) as refusal:
                call(*arguments)
            assert refusal.value.status == 403, call


def _make_device_of_deleted_node(api: client.ApiClient, uuid: str) -> None:
    """Make the GPUDevice of a GPU whose node no longer exists."""
    objects = client.CustomObjectsApi(api)
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GPUDevice", "metadata": {"name": uuid.lower()}}
    objects.create_cluster_custom_object(GROUP, VERSION, DEVICES, body)
    status = {"status": {"node": "a-node-of-before"}}
    objects.patch_cluster_custom_object_status(GROUP, VERSION, DEVICES, uuid.lower(), status)


def _use_all_rights(view: ClusterView, node: AgentNode) -> None:
    for uuid in node.uuids:
        eventually(lambda uuid=uuid: view.status(uuid).get("node") == NODE, what=node.agent_log)  # type: ignore[misc]
    view.pod("a", NODE, memory={"limit": "1Mi"})
    node.kubelet.give("a", (node.uuids[0], "be-0"))
    with AgentClient(node.root) as administrator:
        limit = (
            1 << 20
        )  # the limit is the default, 0, until the agent knows the pod; a loaded machine may need several tries
        eventually(
            lambda: administrator.prepare_slot(node.uuids[0], "be-0").slot.memory_limit_bytes == limit,
            what=node.agent_log,
        )
    view.change(node.uuids[0], cordon=True)
    eventually(lambda: "GPUCordoned" in view.events(node.uuids[0].lower()), what=node.agent_log)
