"""Pods as other controllers make and change them: each request passes, and the pod keeps the share that governs it.

The shapes are those that the controllers' documentation shows. tests/neighbours runs the controllers themselves.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from kubernetes import client

from orion.crds.annotations import PINNED_SHARE
from tests.cluster.admitted_pods import pod, share
from tests.cluster.conftest import Kubectl
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

Fields = dict[str, Any]
GPU: Fields = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}


@dataclass
class Shape:
    """What a controller creates, and the changes that it makes afterwards."""

    labels: dict[str, str]
    annotations: dict[str, str] = field(default_factory=dict)
    container: Fields = field(default_factory=dict)
    """ More fields of the container with the GPU. """
    spec: Fields = field(default_factory=dict)
    """ More fields of the pod; `containers` are those beside the one with the GPU. """
    finalizers: tuple[str, ...] = ()
    changes: tuple[Fields, ...] = ()
    """ Patches of the pod, each as one request. """
    statuses: tuple[Fields, ...] = ()
    """ Patches of its status. """


def labelled(**labels: str | None) -> Fields:
    return {"metadata": {"labels": {name.replace("__", "/"): value for name, value in labels.items()}}}


TARGETED = {"type": "TerminationTarget", "status": "True", "reason": "WorkloadEvictedDueToPreempted"}
SHAPES = {
    "Kueue, topology-aware": Shape(
        {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/managed": "true"},
        {"kueue.x-k8s.io/podset-required-topology": "cloud.provider.com/topology-rack", "kueue.x-k8s.io/workload": "w"},
        spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}]},
        finalizers=("kueue.x-k8s.io/managed",),
        changes=(
            {
                "metadata": {"labels": {"kueue.x-k8s.io/podset": "main"}},
                "spec": {"schedulingGates": None, "nodeSelector": {"cloud.provider.com/topology-rack": "r1"}},
            },
        ),
        statuses=({"status": {"conditions": [TARGETED]}},),
    ),
    "Argo Rollouts": Shape(
        {"rollouts-pod-template-hash": "6d9f", "role": "canary"}, changes=(labelled(role="stable"), labelled(role=None))
    ),
    "Argo CD": Shape(
        {"app.kubernetes.io/instance": "team"},
        {"argocd.argoproj.io/tracking-id": "team:/Pod:team/mine"},
        changes=({"metadata": {"annotations": {"argocd.argoproj.io/sync-options": "Prune=false"}}},),
    ),
    "JobSet": Shape(
        {"jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/replicatedjob-name": "train"},
        {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack", "jobset.sigs.k8s.io/job-index": "0"},
        spec={"subdomain": "set", "restartPolicy": "Never", "nodeSelector": {"rack": "a"}},
        finalizers=("batch.kubernetes.io/job-tracking",),
        changes=({"metadata": {"finalizers": None}},),
        statuses=({"status": {"phase": "Failed"}},),
    ),
    "LeaderWorkerSet": Shape(
        {"leaderworkerset.sigs.k8s.io/name": "groups", "leaderworkerset.sigs.k8s.io/worker-index": "1"},
        {"leaderworkerset.sigs.k8s.io/size": "2", "leaderworkerset.sigs.k8s.io/leader-name": "groups-0"},
        container={"env": [{"name": "LWS_LEADER_ADDRESS", "value": "groups-0.groups.team"}]},
        changes=(labelled(**{"controller-revision-hash": "groups-2"}),),
    ),
    "KServe, Standard": Shape(
        {"serving.kserve.io/inferenceservice": "chat", "component": "predictor"},
        {"internal.serving.kserve.io/storage-initializer-sourceuri": "s3://models/chat"},
        container={"volumeMounts": [{"name": "models", "mountPath": "/mnt/models", "readOnly": True}]},
        spec={
            "initContainers": [
                {
                    "name": "storage-initializer",
                    "image": "localhost/none:1",
                    "args": ["s3://models/chat", "/mnt/models"],
                    "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}},
                    "volumeMounts": [{"name": "models", "mountPath": "/mnt/models"}],
                }
            ],
            "volumes": [{"name": "models", "emptyDir": {}}],
        },
    ),
    "KServe, Knative": Shape(
        {"serving.knative.dev/revision": "chat-00001", "serving.kserve.io/inferenceservice": "chat"},
        {"autoscaling.knative.dev/class": "kpa.autoscaling.knative.dev"},
        spec={"containers": [{"name": "queue-proxy", "image": "localhost/none:1", "env": [{"name": "USER_PORT"}]}]},
        changes=(labelled(**{"serving.knative.dev__routingState": "active"}),),
    ),
    "KubeRay": Shape(
        {"ray.io/cluster": "ray", "ray.io/node-type": "worker", "ray.io/group": "train"},
        {"ray.io/ft-enabled": "false"},
        container={
            "env": [{"name": "RAY_ADDRESS", "value": "ray-head-svc:6379"}, {"name": "REDIS_PASSWORD"}],
            "volumeMounts": [{"name": "shared-mem", "mountPath": "/dev/shm"}],
        },
        spec={
            "initContainers": [
                {
                    "name": "wait-gcs-ready",
                    "image": "localhost/none:1",
                    "resources": {"limits": {"cpu": "200m", "memory": "256Mi"}},
                }
            ],
            "volumes": [{"name": "shared-mem", "emptyDir": {"medium": "Memory"}}],
        },
        changes=(labelled(**{"ray.io__serve": "true"}),),
    ),
    "Kubeflow Trainer": Shape(
        {"jobset.sigs.k8s.io/jobset-name": "train", "trainer.kubeflow.org/trainjob-ancestor-step": "trainer"},
        container={"env": [{"name": "PET_NNODES", "value": "1"}, {"name": "PET_NPROC_PER_NODE", "value": "gpu"}]},
        spec={"subdomain": "train", "restartPolicy": "Never"},
    ),
}


def made(shape: Shape) -> Fields:
    """The pod of a shape, in which one container asks for a GPU, as people do who do not know Orion's resources."""
    marks = {**shape.annotations, "orion/containers": "main"}
    spec = {**shape.spec}
    beside = spec.pop("containers", [])
    given = pod("mine", "be", labels=shape.labels, annotations=marks, container={**GPU, **shape.container}, **spec)
    given["spec"]["containers"] += beside
    given["metadata"]["finalizers"] = list(shape.finalizers)
    return given


@pytest.mark.parametrize("controller", SHAPES)
def test_pods_of_a_controller_are_created_changed_and_deleted(
    kubectl: Kubectl, api: client.ApiClient, admitted: str, controller: str
) -> None:
    shape, core = SHAPES[controller], client.CoreV1Api(api)
    kubectl("create", "-f", "-", given=share("team", "be", selector={"matchLabels": dict([*shape.labels.items()][:1])}))

    def pinned() -> str:
        """Create the pod; without a pin it is deleted, because the webhook may learn of the share later."""
        created = core.create_namespaced_pod(admitted, made(shape))
        pin = created.metadata.annotations[PINNED_SHARE]
        if not pin:
            core.patch_namespaced_pod("mine", admitted, {"metadata": {"finalizers": None}})
            core.delete_namespaced_pod("mine", admitted, grace_period_seconds=0)
        return str(pin)

    assert eventually(pinned) == "team"
    for change in shape.changes:
        core.patch_namespaced_pod("mine", admitted, change)
    for status in shape.statuses:
        core.patch_namespaced_pod_status("mine", admitted, status)
    changed = core.read_namespaced_pod("mine", admitted)
    assert changed.metadata.annotations[PINNED_SHARE] == "team"
    limits = [entry.resources.limits for entry in changed.spec.containers if entry.name == "main"]
    assert limits == [{"orion.gpu/be": "1"}]
    core.patch_namespaced_pod("mine", admitted, {"metadata": {"finalizers": None}})
    core.delete_namespaced_pod("mine", admitted, grace_period_seconds=0)
