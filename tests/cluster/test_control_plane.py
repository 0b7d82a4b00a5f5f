"""The control plane is real: versions, RBAC, scheduling, controllers, CRDs; each test in its own namespace."""

import ssl
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from testbed import binaries
from testbed.access import Access
from testbed.control_plane import ControlPlane
from tests.cluster import api_types
from tests.cluster.conftest import FakeNode, Kubectl, client_for
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

CONTAINER = {"name": "main", "image": "localhost/none:1", "resources": {"limits": {"orion.test/units": "1"}}}


def pod(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [CONTAINER]}}


def test_the_api_server_is_the_version_that_go_mod_pins(api: client.ApiClient) -> None:
    reported = client.VersionApi(api).get_code().git_version.removeprefix("v")
    assert binaries.minor(reported) == binaries.minor(binaries.BINARIES[0].version)


def test_the_api_server_shows_a_certificate_of_its_authority(control_plane: Access) -> None:
    trusting = ssl.create_default_context(cafile=str(control_plane.authority.certificate_path))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusting))
    with opener.open(f"{control_plane.url}/readyz") as answer:
        assert answer.read() == b"ok"
    suspicious = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        suspicious.open(f"{control_plane.url}/readyz")


@pytest.mark.parametrize("attempt", ["first", "second"])
def test_each_test_has_an_empty_namespace(api: client.ApiClient, namespace: str, attempt: str) -> None:
    core = client.CoreV1Api(api)
    assert core.list_namespaced_pod(namespace).items == []
    core.create_namespaced_pod(namespace, pod("same-name-in-both"))


def test_rbac_denies_an_unknown_user(namespace: str, kubeconfig_for: Callable[..., Path]) -> None:
    with client_for(kubeconfig_for("unmanaged")) as unmanaged, pytest.raises(client.ApiException) as refusal:
        client.CoreV1Api(unmanaged).list_namespaced_pod(namespace)
    assert refusal.value.status == 403
    assert '\\"unmanaged\\" cannot list resource \\"pods\\"' in str(refusal.value.body)


def test_rbac_grants_exactly_what_a_role_says(
    namespace: str, kubectl: Kubectl, kubeconfig_for: Callable[..., Path]
) -> None:
    account = f"system:serviceaccount:{namespace}:reader"
    kubectl("create", "role", "reader", "--verb=list", "--resource=pods")
    kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:reader")
    with client_for(kubeconfig_for(account)) as reader:
        core = client.CoreV1Api(reader)
        eventually(lambda: allowed(lambda: core.list_namespaced_pod(namespace)))
        assert not allowed(lambda: core.delete_collection_namespaced_pod(namespace))


def allowed(call: Callable[[], object]) -> bool:
    try:
        call()
    except client.ApiException as refusal:
        if refusal.status == 403:
            return False
        raise
    return True


def test_the_scheduler_puts_a_pod_where_its_resources_are(
    api: client.ApiClient, namespace: str, fake_node: FakeNode
) -> None:
    fake_node("without")
    chosen = fake_node("with", {"orion.test/units": "1"})
    core = client.CoreV1Api(api)
    core.create_namespaced_pod(namespace, pod("first"))
    assert eventually(lambda: core.read_namespaced_pod("first", namespace).spec.node_name) == chosen
    core.create_namespaced_pod(namespace, pod("second"))

    def reason() -> str:
        conditions = core.read_namespaced_pod("second", namespace).status.conditions or []
        return next((condition.message for condition in conditions if condition.reason == "Unschedulable"), "")

    assert "Insufficient orion.test/units" in eventually(reason)


def test_the_controller_manager_makes_the_pods_of_a_deployment(
    api: client.ApiClient, namespace: str, fake_node: FakeNode
) -> None:
    node = fake_node("one", {"orion.test/units": "3"})
    labels = {"app": "three"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [CONTAINER]}}
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    client.AppsV1Api(api).create_namespaced_deployment(namespace, {"metadata": {"name": "three"}, "spec": spec})
    core = client.CoreV1Api(api)

    def nodes() -> list[str]:
        pods = core.list_namespaced_pod(namespace, label_selector="app=three").items
        return [each.spec.node_name for each in pods]

    eventually(lambda: nodes() == [node] * 3, what="three pods on the node")


def test_a_crd_is_applied_and_the_api_server_checks_its_cel_rules(
    api: client.ApiClient, namespace: str, kubectl: Kubectl
) -> None:
    group = f"{namespace}.orion.test"
    rule = {"rule": "self.low <= self.high", "message": "low must not be above high"}
    numbers = {"low": {"type": "integer"}, "high": {"type": "integer"}}
    spec = {"type": "object", "properties": numbers, "x-kubernetes-validations": [rule]}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "ranges", "singular": "range", "kind": "Range"}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"ranges.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    kubectl("apply", "--server-side", "-f", "-", given=crd)
    eventually(lambda: api_types.served(api, f"{group}/v1"))
    wrong = {"apiVersion": f"{group}/v1", "kind": "Range", "metadata": {"name": "r"}, "spec": {"low": 2, "high": 1}}
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        kubectl("create", "-f", "-", given=wrong)
    assert "low must not be above high" in refusal.value.stderr
    kubectl("delete", f"crd/ranges.{group}")


def test_a_tests_own_api_server_can_be_killed_and_restarts_with_its_state(own_control_plane: ControlPlane) -> None:
    access = own_control_plane.access
    with client_for(access.kubeconfig) as administrator:
        core = client.CoreV1Api(administrator)
        core.create_namespace({"metadata": {"name": "kept"}})
        before = own_control_plane.pids()
        own_control_plane.end("kube-apiserver")
        with pytest.raises(OSError, match="refused"):
            access.get("/readyz")
        own_control_plane.begin("kube-apiserver")
        own_control_plane.wait_until_ready()
        after = own_control_plane.pids()
        assert core.read_namespace("kept").metadata.name == "kept"
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"kube-apiserver"}
    assert own_control_plane.fault() == ""
