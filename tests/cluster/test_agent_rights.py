"""The node agent's rights: exactly those that the chart ships, none missing or unused, as the audit log saw it."""

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from orion.node_agent.api.client import AgentClient
from tests.cluster import api_types
from tests.cluster.agent_process import DEVICES, GROUP, ROLE, VERSION, AgentNode, ClusterView, grant_rights, machine
from tests.cluster.conftest import client_for
from tests.cluster.waiting import eventually
from tools.cluster import binaries
from tools.cluster.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

USER = "system:serviceaccount:default:orion-agent"
NODE = "a-node"


class Audited:
    """A control plane that writes down what the agent asks of it, under the chart's rules."""

    def __init__(self, plane: ControlPlane, log: Path, api: client.ApiClient, kubeconfig: Path) -> None:
        self.api, self.view, self.kubeconfig, self._log = api, ClusterView(api, "default"), kubeconfig, log
        self.plane = plane

    def lines(self) -> list[dict[str, Any]]:
        """Return what was asked; the last line may be half written."""
        lines = self._log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def asked(self) -> set[tuple[str, str, str]]:
        """Return group, resource and verb of all requests; what everybody may ask is left out."""
        found = set()
        for line in self.lines():
            reference = line.get("objectRef")
            if reference and "resource" in reference:
                resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
                found.add((reference.get("apiGroup", ""), resource, line["verb"]))
        return found


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[Audited]:
    log, policy = tmp_path / "audit.log", tmp_path / "audit.yaml"
    rules = [{"level": "Metadata", "users": [USER]}, {"level": "None"}]
    stages = {"omitStages": ["RequestReceived"], "rules": rules}
    policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", **stages}))
    programs = dict(binaries.find_all())
    with_audit = tmp_path / "kube-apiserver"
    options = f"--audit-policy-file={policy} --audit-log-path={log}"
    with_audit.write_text(f'#!/bin/sh\nexec {shlex.quote(str(programs["kube-apiserver"]))} "$@" {options}\n')
    with_audit.chmod(0o700)
    plane = ControlPlane(tmp_path / "plane", programs | {"kube-apiserver": with_audit})
    with plane, client_for(plane.access.kubeconfig) as api:
        api_types.establish(api)
        grant_rights(api, {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}, "default")
        yield Audited(plane, log, api, plane.access.kubeconfig_for(USER, [], tmp_path / "agent.kubeconfig"))


def test_every_right_is_used_and_none_is_missing(audited: Audited, c_build: Path) -> None:
    client.CoreV1Api(audited.api).create_node({"metadata": {"name": NODE}})
    with machine(c_build, NODE, audited.kubeconfig, "rights", audited.view) as node:
        _was_elsewhere(audited.api, node.uuids[1])
        node.start_agent()
        _all_that_it_does(audited.view, node)
        eventually(lambda: _granted() <= audited.asked(), otherwise=f"{_granted() - audited.asked()} are unused")
    assert audited.asked() == _granted()
    assert [line for line in audited.lines() if line["responseStatus"]["code"] == 403] == []


def test_what_it_may_not_do_it_cannot(audited: Audited) -> None:
    with client_for(audited.kubeconfig) as agent:
        core, objects = client.CoreV1Api(agent), client.CustomObjectsApi(agent)
        forbidden: list[tuple[Callable[..., object], tuple[object, ...]]] = [
            (core.list_secret_for_all_namespaces, ()),
            (core.list_namespaced_config_map, ("default",)),
            (core.patch_namespaced_pod, ("p", "default", {"metadata": {"annotations": {"orion/grant": "{}"}}})),
            (core.patch_namespaced_pod_status, ("p", "default", {"metadata": {"annotations": {"orion/grant": "{}"}}})),
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


def _was_elsewhere(api: client.ApiClient, uuid: str) -> None:
    """Make the object of a GPU that was in a node which is no more."""
    objects = client.CustomObjectsApi(api)
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GPUDevice", "metadata": {"name": uuid.lower()}}
    objects.create_cluster_custom_object(GROUP, VERSION, DEVICES, body)
    status = {"status": {"node": "a-node-of-before"}}
    objects.patch_cluster_custom_object_status(GROUP, VERSION, DEVICES, uuid.lower(), status)


def _all_that_it_does(view: ClusterView, node: AgentNode) -> None:
    for uuid in node.uuids:
        eventually(lambda uuid=uuid: view.status(uuid).get("node") == NODE, otherwise=node.agent_log())  # type: ignore[misc]
    view.pod("a", NODE, {"format": 1, "priority": "be", "containers": {"main": {"memoryLimitBytes": 1 << 20}}})
    node.kubelet.give("a", (node.uuids[0], "be-0"))
    with AgentClient(node.root) as administrator:
        limit = 1 << 20  # the default, 0, until the pod is known: on a loaded machine that may take more than a try
        eventually(
            lambda: administrator.prepare_slot(node.uuids[0], "be-0").slot.memory_limit_bytes == limit,
            otherwise=node.agent_log(),
        )
    view.change(node.uuids[0], cordon=True)
    eventually(lambda: "GPUCordoned" in view.events(node.uuids[0].lower()), otherwise=node.agent_log())


def _granted() -> set[tuple[str, str, str]]:
    """Return group, resource and verb of all that the chart's rules allow."""
    return {
        (group, resource, verb)
        for document in yaml.safe_load_all(ROLE.read_text())
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
