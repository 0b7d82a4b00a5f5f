"""Kueue's own controller, with topology-aware scheduling: it gates pods, and labels them as it removes the gate."""

from collections.abc import Iterator

import pytest
from kubernetes import client

from testbed.cluster import NODE_LABELS
from testbed.neighbours import KUEUE
from tests.neighbours.conftest import Install
from tests.neighbours.workloads import Workloads, share, template
from tests.node.gpu_tenants import Manifest
from tests.waiting import eventually

pytestmark = pytest.mark.neighbours

VERSION = "kueue.x-k8s.io/v1beta2"
QUEUE = "kueue.x-k8s.io/queue-name"
LEVEL = "kubernetes.io/hostname"
TOGETHER = {"kueue.x-k8s.io/podset-required-topology": LEVEL}


def made(kind: str, name: str, **spec: object) -> Manifest:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def queue(install: Install, workloads: Workloads) -> Iterator[str]:
    """A queue with two be slots and one hp slot of nodes whose topology Kueue knows."""
    install(KUEUE)
    name = workloads.namespace
    amounts = {"cpu": "4", "memory": "8Gi", "orion.gpu/be": "2", "orion.gpu/hp": "1"}
    quotas = [{"name": resource, "nominalQuota": amount} for resource, amount in amounts.items()]
    flavor = {"name": name, "resources": quotas}
    workloads.apply(
        made("Topology", name, levels=[{"nodeLabel": LEVEL}]),
        made("ResourceFlavor", name, nodeLabels=NODE_LABELS, topologyName=name),
        made(
            "ClusterQueue",
            name,
            namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": name}},
            resourceGroups=[{"coveredResources": list(amounts), "flavors": [flavor]}],
        ),
        made("LocalQueue", "queue", clusterQueue=name),
    )
    yield "queue"
    for kind in ("clusterqueue", "resourceflavor", "topology"):  # each is in use until the one before is gone
        workloads.remove(kind, name)


def job(name: str, pods: int) -> Manifest:
    of_job = template("be", job=name)
    of_job["metadata"]["annotations"] |= TOGETHER
    of_job["spec"]["restartPolicy"] = "Never"
    spec = {"parallelism": pods, "completions": pods, "template": of_job, "backoffLimit": 3}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {QUEUE: "queue"}},
        "spec": spec,
    }


def gates(pods: dict[str, client.V1Pod]) -> list[str]:
    return [gate.name for pod in pods.values() for gate in pod.spec.scheduling_gates or ()]


def test_jobs_wait_in_the_queue_run_where_the_topology_says_and_are_stopped_and_resumed(
    queue: str, workloads: Workloads
) -> None:
    workloads.apply(share("train", "be", job="first"))
    workloads.apply(job("first", 2))
    first = workloads.running(2, job="first")
    assert gates(first) == []
    for pod in first.values():
        assert workloads.governed_by(pod) == "train"
        assert "kueue.x-k8s.io/podset" in pod.metadata.labels
        assert pod.spec.node_selector[LEVEL] == pod.spec.node_name
    workloads.apply(job("second", 1))
    workloads.named("workload", "second")
    assert workloads.pods(job="second") == {}  # the quota is spent
    workload = workloads.named("workload", "first")
    workloads.patch("workload", workload, {"spec": {"active": False}})
    workloads.running(0, job="first")
    workloads.running(1, job="second")
    workloads.remove("job", "second")
    workloads.patch("workload", workload, {"spec": {"active": True}})
    workloads.running(2, job="first")
    workloads.delete("job", "first")


def test_plain_pods_and_a_group_of_pods_are_gated_admitted_and_deleted(queue: str, workloads: Workloads) -> None:
    workloads.apply(share("serve", "hp", pod="alone"))
    plain = template("hp", pod="alone", **{QUEUE: queue})
    plain["metadata"]["annotations"] |= TOGETHER
    workloads.apply({"apiVersion": "v1", "kind": "Pod", **plain, "metadata": {"name": "alone", **plain["metadata"]}})
    (alone,) = workloads.running(1, pod="alone").values()
    assert workloads.governed_by(alone) == "serve"
    for name in ("one", "two"):
        member = template("be", pod="group", **{QUEUE: queue, "kueue.x-k8s.io/pod-group-name": "group"})
        member["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = "2"
        workloads.apply({"apiVersion": "v1", "kind": "Pod", **member, "metadata": {"name": name, **member["metadata"]}})
        if name == "one":
            assert gates(workloads.pods(pod="group")) != []
    workloads.running(2, pod="group")
    workloads.remove("pod", "alone", "one", "two")  # Kueue keeps a pod of a group until all have ended


def test_pods_of_a_deployment_in_a_queue_are_replaced(queue: str, workloads: Workloads) -> None:
    pods = template("be", app="train", **{QUEUE: queue})
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "train"}},
        "template": pods,
        "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
    }
    metadata = {"name": "train", "labels": {QUEUE: queue}}
    workloads.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    before = workloads.running(1, app="train")
    workloads.patch("deployment", "train", {"spec": {"template": {"metadata": {"annotations": {"update": "1"}}}}})
    eventually(lambda: not before.keys() & workloads.pods(app="train").keys())
    workloads.running(1, app="train")
    workloads.delete("deployment", "train")
