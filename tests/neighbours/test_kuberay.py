"""KubeRay's own controller: the head and the workers of a cluster, with the example's program instead of ray."""

import pytest

from testbed.neighbours import KUBERAY
from tests.neighbours.conftest import Install
from tests.neighbours.workloads import Workloads, share, template
from tests.node.gpu_tenants import Manifest

pytestmark = pytest.mark.neighbours

OWN_COMMAND = {"ray.io/overwrite-container-cmd": "true"}


def cluster(workers: int) -> Manifest:
    head, worker = template("hp", role="head"), template("be", role="worker")
    for pods in (head, worker):
        pods["metadata"]["annotations"] |= OWN_COMMAND
    group = {"groupName": "train", "replicas": workers, "minReplicas": 0, "maxReplicas": 3, "rayStartParams": {}}
    spec = {
        "headGroupSpec": {"rayStartParams": {"num-gpus": "1"}, "template": head},
        "workerGroupSpecs": [{**group, "template": worker}],
    }
    metadata = {"name": "ray", "annotations": OWN_COMMAND}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}


def test_a_ray_cluster_is_created_scaled_suspended_resumed_and_deleted(install: Install, workloads: Workloads) -> None:
    install(KUBERAY)
    workloads.apply(share("serve", "hp", role="head"), cluster(1))
    workloads.running(2)
    (head,) = workloads.running(1, role="head").values()
    assert workloads.governed_by(head) == "serve"
    workloads.apply(cluster(2))
    before = workloads.running(3)
    workloads.remove("pod", next(name for name in before if "worker" in name))  # the controller replaces it
    workloads.running(3)
    workloads.patch("raycluster", "ray", {"spec": {"suspend": True}})
    workloads.running(0)
    workloads.patch("raycluster", "ray", {"spec": {"suspend": False}})
    workloads.running(3)
    workloads.delete("raycluster", "ray")
