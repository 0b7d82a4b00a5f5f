"""A real API server accepts the rendered chart: no misspelt field, and pods of the documented security standards."""

import subprocess
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from kubernetes import client

from tests.chart import rendered_chart as chart
from tests.chart.rendered_chart import Object
from tests.chart.test_chart_golden import SETS
from tests.cluster import api_types
from tests.cluster.conftest import (  # noqa: F401 - fixtures
    FakeNode,
    Kubectl,
    api,
    control_plane,
    fake_node,
    kubeconfig_for,
    kubectl,
    namespace,
    programs,
)
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

OF_OTHERS = ("cert-manager.io/v1", "monitoring.coreos.com/v1")
ENFORCED = "pod-security.kubernetes.io/enforce"


def rendered(values: Mapping[str, Any], where: str) -> list[Object]:
    """Return the objects that an API server without cert-manager and Prometheus knows, in a namespace of a test."""
    found = [each for each in chart.objects(values) if each["apiVersion"] not in OF_OTHERS]
    return [yaml.safe_load(yaml.safe_dump(each).replace(f"namespace: {chart.NAMESPACE}", f"namespace: {where}"))
            for each in found]  # fmt: skip


@pytest.mark.parametrize("name", SETS)
def test_the_api_server_accepts_every_object(
    name: str,
    kubectl: Kubectl,  # noqa: F811
    api: client.ApiClient,  # noqa: F811
    namespace: str,  # noqa: F811
) -> None:
    api_types.establish(api)  # a namespace that requires shares gets one for `helm test`
    found = rendered(SETS[name], namespace)
    said = kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", "--force-conflicts",
                   given=yaml.safe_dump_all(found))  # fmt: skip
    assert said.count("(server dry run)") == len(found)


def _accounts_and_pods(values: Mapping[str, Any], where: str) -> tuple[list[Object], dict[str, Object]]:
    """Return the service accounts, and a pod of each component."""
    found = rendered(values, where)
    accounts = [each for each in found if each["kind"] == "ServiceAccount"]
    pods = {
        name: {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": where}, "spec": spec}
        for name, spec in chart.pod_specs(found).items()
    }
    return accounts, pods


def test_pods_meet_the_stated_security_standards(kubectl: Kubectl, namespace: str) -> None:  # noqa: F811
    accounts, pods = _accounts_and_pods({"mps": {"enabled": True}}, namespace)
    kubectl("apply", "--server-side", "-f", "-", given=yaml.safe_dump_all(accounts))
    kubectl("label", "namespace", namespace, f"{ENFORCED}=restricted")
    for name in ("orion-operator", "orion-webhook", "orion-test-slot", "orion-cleanup"):
        kubectl("create", "--dry-run=server", "-f", "-", given=pods.pop(name))
    for pod in pods.values():
        with pytest.raises(subprocess.CalledProcessError) as refused:
            kubectl("create", "--dry-run=server", "-f", "-", given=pod)
        for allowed in ("allowPrivilegeEscalation", "hostNetwork", "seccomp", "privileged container"):
            assert allowed not in refused.value.stderr.partition("violates")[2]
    kubectl("label", "namespace", namespace, f"{ENFORCED}=privileged", "--overwrite")
    for pod in pods.values():
        kubectl("create", "--dry-run=server", "-f", "-", given=pod)


def test_the_drain_of_the_only_schedulable_node_ends(
    kubectl: Kubectl,  # noqa: F811
    api: client.ApiClient,  # noqa: F811
    namespace: str,  # noqa: F811
    fake_node: FakeNode,  # noqa: F811
) -> None:
    """The pods are evicted although their replacements find no node."""
    core, node = client.CoreV1Api(api), fake_node("only", labels={"kubernetes.io/os": "linux"})
    kinds = ("ServiceAccount", "Deployment", "PodDisruptionBudget")
    kept = [each for each in rendered({}, namespace) if each["kind"] in kinds]
    kubectl("apply", "--server-side", "-f", "-", given=yaml.safe_dump_all(kept))
    wanted = sum(each["spec"]["replicas"] for each in kept if each["kind"] == "Deployment")

    def bound() -> list[str]:
        found = core.list_namespaced_pod(namespace, field_selector=f"spec.nodeName={node}").items
        return [each.metadata.name for each in found]

    eventually(lambda: len(bound()) == wanted)
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for name in bound():  # as a kubelet does
        core.patch_namespaced_pod_status(name, namespace, {"status": ready})
    policy = client.PolicyV1Api(api)
    eventually(lambda: all(each.status and each.status.current_healthy
                           for each in policy.list_namespaced_pod_disruption_budget(namespace).items))  # fmt: skip
    kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--grace-period=0", "--timeout=30s")
    assert bound() == []
