"""The webhook refuses invalid pods at a real API server, each with a sentence that says what is wrong."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from orion.operator.webhook.defaults import Defaults
from tests.cluster.admitted_pods import HP, pod, refusal, share
from tests.cluster.conftest import Kubectl
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

HOOK = Defaults().hook
ROOT = Path(__file__).parents[2]


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown priority": (pod("x", "high"), "orion/priority must be hp or be"),
    "share that does not exist": (pod("x", "hp", annotations={"orion/share": "gone"}), "gone, which does not exist"),
    "hp and be in one container": (
        pod("x", container={"resources": {"limits": {"orion.gpu/hp": "1", "orion.gpu/be": "1"}}}),
        "either hp or be",
    ),
    "annotation and resource": (pod("x", "be", container=HP), "orion/priority says be, but container main asks"),
    "a resource that does not exist": (
        pod("x", container={"resources": {"limits": {"orion.gpu/gold": "1"}}}),
        "orion.gpu/gold, which does not exist",
    ),
    "two kinds": (
        pod("x", container={"resources": {"limits": {"orion.gpu/hp": "1", "nvidia.com/gpu": "1"}}}),
        "a slot already gives access to a GPU",
    ),
    "privileged": (pod("x", "hp", container={"securityContext": {"privileged": True}}), "main is privileged"),
    "hostPID": (pod("x", "hp", hostPID=True), "hostPID"),
    "hostPath of devices": (
        pod("x", "hp", volumes=[{"name": "v", "hostPath": {"path": "/dev/nvidia0"}}]),
        "volume v is the node's /dev/nvidia0",
    ),
    "hostPath of the kubelet": (
        pod("x", "hp", volumes=[{"name": "v", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]),
        "the kubelet's sockets",
    ),
    "hostPath of slots": (pod("x", "hp", volumes=[{"name": "v", "hostPath": {"path": "/var/run/orion"}}]), "the slots"),
    "device variable": (
        pod("x", "hp", container={"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}),
        "sets NVIDIA_VISIBLE_DEVICES",
    ),
    "audit library": (pod("x", "hp", container={"env": [{"name": "LD_AUDIT", "value": "/a.so"}]}), "sets LD_AUDIT"),
    "another root": (pod("x", "hp", container={"env": [{"name": "ORION_ROOT", "value": "/t"}]}), "sets ORION_ROOT"),
    "preload from elsewhere": (
        pod("x", "hp", container={"env": [{
            "name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]}),
        "takes LD_PRELOAD from a reference",
    ),
    "mount over slots": (
        pod("x", "hp", volumes=[{"name": "v", "emptyDir": {}}],
            container={"volumeMounts": [{"name": "v", "mountPath": "/run/orion/lib"}]}),
        "where its slots are",
    ),
    "greedy init container": (
        pod("x", "hp", initContainers=[{
            "name": "i", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]),
        "init container i asks for 2 slots",
    ),
    "static pod": (
        pod("x", "be", nodeName="none", annotations={"kubernetes.io/config.mirror": "0"}),
        "static pods cannot share GPUs",
    ),
    "annotation of no container": (
        pod("x", "hp", annotations={"orion/containers": "other"}), "names 'other'; the pod's containers are main",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_pods_that_cannot_work_are_refused_with_a_sentence(kubectl: Kubectl, admitted: str, case: str) -> None:
    given, sentence = REFUSALS[case]
    with pytest.raises(subprocess.CalledProcessError) as refused:
        kubectl("create", "-n", admitted, "-f", "-", given=given)
    assert sentence in refused.value.stderr
    assert "pods.webhook.orion.gpu" in refused.value.stderr


def test_shares_that_contradict_or_overlap_are_named(api: client.ApiClient, kubectl: Kubectl, admitted: str) -> None:
    selector = {"matchLabels": {"app": "chat"}}
    for name in ("blue", "green"):
        kubectl("create", "-n", admitted, "-f", "-", given=share(name, "be", selector=selector))
    eventually(lambda: "blue and green all select" in refusal(api, admitted, pod("x", "be", labels={"app": "chat"})))
    named = pod("x", "hp", annotations={"orion/share": "blue"})
    assert "orion/priority says hp, but GPUShare blue has spec.priority be" in refusal(api, admitted, named)


# -- Changes after creation --------------------------------------------------------------------------------------------


EPHEMERAL = {"name": "look", "image": "localhost/none:1"}


@pytest.mark.parametrize(
    ("container", "sentence"),
    [
        ({**EPHEMERAL, "securityContext": {"privileged": True}}, "ephemeral container look is privileged"),
        ({**EPHEMERAL, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}, "sets NVIDIA_VISIBLE_DEVICES"),
        (EPHEMERAL, ""),
    ],
    ids=["privileged", "devices", "harmless"],
)
def test_unsafe_ephemeral_containers_are_refused(
    api: client.ApiClient, admitted: str, container: dict[str, Any], sentence: str
) -> None:
    core = client.CoreV1Api(api)
    core.create_namespaced_pod(admitted, pod("mine", "be"))
    patch = {"spec": {"ephemeralContainers": [container]}}
    if not sentence:
        core.patch_namespaced_pod_ephemeralcontainers("mine", admitted, patch)
        return
    with pytest.raises(client.ApiException) as refused:
        core.patch_namespaced_pod_ephemeralcontainers("mine", admitted, patch)
    assert sentence in str(refused.value.body)
