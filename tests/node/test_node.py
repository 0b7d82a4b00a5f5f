"""The node is real: pods run, log, answer `kubectl exec`, reach each other and the API server, and are resized."""

import json
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from testbed import binaries, cgroups
from testbed.node import Node
from tests.cluster.conftest import Kubectl
from tests.node.shell_pods import service, shell_pod
from tests.waiting import eventually

pytestmark = pytest.mark.node

SERVING = "mkdir /www; echo served > /www/index.html; exec httpd -f -p 80 -h /www"


def run(kubectl: Kubectl, *manifests: dict[str, Any]) -> None:
    """Create objects, and wait until the pods among them are ready."""
    for manifest in manifests:
        kubectl("create", "-f", "-", given=manifest)
    pods = [f"pod/{each['metadata']['name']}" for each in manifests if each["kind"] == "Pod"]
    kubectl("wait", "--for=condition=Ready", "--timeout=50s", *pods)


def test_the_node_is_ready_and_of_the_version_that_go_mod_pins(api: client.ApiClient, node: Node) -> None:
    seen = client.CoreV1Api(api).read_node(node.name)
    assert node.ready()
    assert seen.status.node_info.kubelet_version.removeprefix("v") == binaries.BINARIES[0].version
    assert seen.metadata.labels["orion/enabled"] == "true"


def test_a_pod_runs_and_kubectl_reads_its_log_and_executes_in_it(kubectl: Kubectl, node: Node) -> None:
    run(kubectl, shell_pod("talker", "echo I run; sleep 1000"))
    assert eventually(lambda: kubectl("logs", "talker")) == "I run\n"
    assert kubectl("exec", "talker", "--", "hostname") == "talker\n"


def test_a_service_is_reached_from_another_pod_and_from_the_control_plane(
    kubectl: Kubectl, namespace: str, node: Node
) -> None:
    asking = "until wget -qO- http://$SERVER_SERVICE_HOST; do sleep 0.1; done; sleep 1000"
    run(kubectl, service("server"), shell_pod("server", SERVING), shell_pod("user", asking))
    eventually(lambda: "served" in kubectl("logs", "user"))
    # The API server calls a webhook that is a Service the same way.
    assert kubectl("get", "--raw", f"/api/v1/namespaces/{namespace}/services/server:80/proxy/") == "served\n"


def test_a_pod_reaches_the_api_server_by_its_service_with_its_own_token(
    kubectl: Kubectl, programs: dict[str, Path], node: Node
) -> None:
    # busybox's own TLS ends with a segmentation fault at a server of Go 1.26.
    asking = "/tools/kubectl get --raw /apis/authentication.k8s.io/v1 && echo answered; sleep 1000"
    tools = {"name": "tools", "hostPath": {"path": str(programs["kubectl"].parent)}}
    mounts = {"volumeMounts": [{"name": "tools", "mountPath": "/tools", "readOnly": True}]}
    run(kubectl, shell_pod("caller", asking, mounts, volumes=[tools]))
    eventually(lambda: "answered" in kubectl("logs", "caller"))
    assert "TokenReview" in kubectl("logs", "caller")


def test_a_pod_is_resized_while_it_runs(kubectl: Kubectl, api: client.ApiClient, namespace: str, node: Node) -> None:
    amounts = {"cpu": "100m", "memory": "32Mi"}
    resources = {"resources": {"limits": amounts, "requests": amounts}}
    run(kubectl, shell_pod("growing", "echo begun; sleep 1000", resources))
    more = {"cpu": "300m", "memory": "64Mi"}
    wanted = {"spec": {"containers": [{"name": "main", "resources": {"limits": more, "requests": more}}]}}
    kubectl("patch", "pod", "growing", "--subresource=resize", "--patch", json.dumps(wanted))

    def limits() -> tuple[int, int]:
        if cgroups.mode() == "v2":
            files = "/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/memory.max"
        else:
            files = "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/memory/memory.limit_in_bytes"
        quota, memory = kubectl("exec", "growing", "--", "cat", *files).splitlines()
        return int(quota.split()[0]), int(memory)

    eventually(lambda: limits() == (30_000, 64 << 20))
    status = client.CoreV1Api(api).read_namespaced_pod("growing", namespace).status.container_statuses[0]
    assert status.restart_count == 0
    assert kubectl("logs", "growing") == "begun\n"


def test_two_nodes_have_pods_that_reach_each_other(
    kubectl: Kubectl, api: client.ApiClient, namespace: str, node: Node, second_node: Node
) -> None:
    asking = "until wget -qO- http://$SERVER_SERVICE_HOST; do sleep 0.1; done; sleep 1000"
    there, here = ({"kubernetes.io/hostname": each.name} for each in (second_node, node))
    run(kubectl, service("server"), shell_pod("server", SERVING, nodeSelector=there))
    run(kubectl, shell_pod("user", asking, nodeSelector=here))
    eventually(lambda: "served" in kubectl("logs", "user"))
    pods = {each.metadata.name: each for each in client.CoreV1Api(api).list_namespaced_pod(namespace).items}
    assert [pods[name].spec.node_name for name in ("server", "user")] == [second_node.name, node.name]
    assert pods["server"].status.host_ip == second_node.address


def test_each_node_has_its_own_processes_folders_and_simulated_gpus(node: Node, second_node: Node) -> None:
    for one, other in ((node, second_node), (second_node, node)):
        one.run(
            ["sh", "-c", "mkdir -p /run/orion && hostname > /run/orion/whose && cp /run/orion/whose /var/lib/orion/"]
        )
        assert one.run(["cat", "/run/orion/whose", "/var/lib/orion/whose"]) == f"{one.name}\n" * 2
        assert other.name not in one.run(["ps", "-e", "-o", "args"])
        assert one.run(["sh", "-c", "echo $ORION_SIM_SEED"]).strip() == one.name
