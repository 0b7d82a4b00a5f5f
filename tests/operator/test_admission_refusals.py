"""Pods that cannot work, with the sentence of each rejection."""

from typing import Any

import pytest

from orion.operator.webhook.decisions import Outcome, Reason
from tests.operator.admitted_pod import GPU, decide, pod


def variable(name: str, value: str = "x") -> dict[str, Any]:
    return pod({**GPU, "env": [{"name": name, "value": value}]})


def host_path(path: str) -> dict[str, Any]:
    return pod(volumes=[{"name": "v", "hostPath": {"path": path}}])


def asking(**limits: Any) -> dict[str, Any]:
    return pod({"resources": {"limits": {name.replace("__", "/").replace("_", "."): n for name, n in limits.items()}}})


BY_REFERENCE = {"name": "LD_PRELOAD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
TWICE = [{"name": "LD_PRELOAD", "value": "/a.so"}, {"name": "LD_PRELOAD", "value": "/b.so"}]
OVER = [{"name": "v", "mountPath": "/run//orion/slots/"}]
GPU_MOUNT = [{"name": "v", "mountPath": "/var/run/nvidia-container-devices/all"}]
LIST = [{"name": "v", "mountPath": "/etc/ld.so.preload"}]
REFUSED: dict[str, tuple[dict[str, Any], Reason, str]] = {
    "priority": (pod(annotations={"orion/priority": "HP"}), Reason.UNKNOWN_ANNOTATION_VALUE, "hp or be, not 'HP'"),
    "containers without priority": (pod(annotations={"orion/containers": "c0"}), Reason.NO_PRIORITY, "orion/priority"),
    "unknown container": (
        pod(annotations={"orion/priority": "hp", "orion/containers": "nope"}), Reason.NO_CONTAINER, "containers are c0",
    ),
    "asks but is not named": (
        pod(GPU, GPU, annotations={"orion/priority": "hp", "orion/containers": "c0"}), Reason.NO_CONTAINER, "c1 asks",
    ),
    "no container asks": (pod({}, {}), Reason.NO_CONTAINER, "none of the containers c0, c1 asks"),
    "missing share": (
        pod(annotations={"orion/priority": "hp", "orion/share": "s"}), Reason.SHARE_NOT_FOUND, "which does not exist",
    ),
    "hp and be": (asking(orion_gpu__hp=1, orion_gpu__be=1), Reason.MIXED_PRIORITIES, "either hp or be"),
    "slots and GPUs": (asking(orion_gpu__hp=1, nvidia_com__gpu=1), Reason.TWO_KINDS_OF_GPU, "already gives access"),
    "MIG": (asking(**{"nvidia_com__mig-1g_5gb": 1}), Reason.TWO_KINDS_OF_GPU, "shares whole GPUs"),
    "no such resource": (asking(orion_gpu__x=1), Reason.TWO_KINDS_OF_GPU, "ask for orion.gpu/hp or orion.gpu/be"),
    "half a GPU": (asking(nvidia_com__gpu="500m"), Reason.WRONG_AMOUNT, "500m of nvidia.com/gpu"),
    "no amount": (asking(nvidia_com__gpu="one"), Reason.WRONG_AMOUNT, "one of nvidia.com/gpu"),
    "too many": (asking(nvidia_com__gpu="65"), Reason.WRONG_AMOUNT, "up to 64"),
    "limit and request": (
        pod({"resources": {"limits": {"orion.gpu/hp": 2}, "requests": {"orion.gpu/hp": 1}}}), Reason.WRONG_AMOUNT,
        "must be equal",
    ),
    "annotation and slots": (asking(orion_gpu__be=1), Reason.MIXED_PRIORITIES, "says hp, but container c0 asks"),
    "greedy init": (
        pod(initContainers=[{"name": "i", "resources": {"limits": {"nvidia.com/gpu": 2}}}]),
        Reason.INIT_CONTAINER_ASKS_FOR_MORE, "for more than 1",
    ),
    "init alone": (
        pod({}, initContainers=[{"name": "i", **GPU}]), Reason.INIT_CONTAINER_ASKS_FOR_MORE, "for more than 0",
    ),
    "privileged": (pod({**GPU, "securityContext": {"privileged": True}}), Reason.PRIVILEGED, "c0 is privileged"),
    "privileged, no slots": (
        pod(GPU, {"securityContext": {"privileged": True}}), Reason.PRIVILEGED, "c1 is privileged",
    ),
    "hostPID": (pod(hostPID=True), Reason.HOST_PROCESSES, "hostPID"),
    "visible devices": (variable("NVIDIA_VISIBLE_DEVICES", "all"), Reason.DEVICE_ENVIRONMENT, "which GPU a container"),
    "visible devices, no slots": (
        pod(GPU, {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}]}), Reason.DEVICE_ENVIRONMENT, "c1 sets",
    ),
    "another MPS server": (variable("CUDA_MPS_PIPE_DIRECTORY"), Reason.DEVICE_ENVIRONMENT, "CUDA_MPS"),
    "audit": (variable("LD_AUDIT"), Reason.HOOK_ENVIRONMENT, "LD_AUDIT"),
    "root": (variable("ORION_ROOT"), Reason.HOOK_ENVIRONMENT, "ORION_ROOT"),
    "preload by reference": (pod({**GPU, "env": [BY_REFERENCE]}), Reason.HOOK_ENVIRONMENT, "(valueFrom)"),
    "preload twice": (pod({**GPU, "env": TWICE}), Reason.HOOK_ENVIRONMENT, "twice"),
    "mount over slots": (pod({**GPU, "volumeMounts": OVER}), Reason.HIDDEN_MOUNT, "outside /run/orion"),
    "mount that names a GPU": (pod({**GPU, "volumeMounts": GPU_MOUNT}), Reason.DEVICE_MOUNT, "takes GPUs"),
    "mount that names a GPU, no slots": (pod(GPU, {"volumeMounts": GPU_MOUNT}), Reason.DEVICE_MOUNT, "c1 mounts"),
    "mount over the loader's list": (pod({**GPU, "volumeMounts": LIST}), Reason.HIDDEN_MOUNT, "could hide the hook"),
    **{path: (host_path(path), Reason.HOST_PATH, f"the node's {path}") for path in (
        "/", "/dev", "/dev/nvidia0", "/dev/nvidia-uvm", "/dev/dri/card0", "/run", "/run/orion", "/run/orion/slots/x",
        "/var/run/orion", "/var/../run/./orion", "//run//orion", "/var/lib/kubelet/pod-resources/kubelet.sock", "/var",
        "/proc/1/root", "/sys/fs/cgroup", "/run/containerd/containerd.sock", "/var/run/docker.sock",
        "/run/k3s/containerd/containerd.sock", "/var/lib/k0s/kubelet", "/var/snap", "/var/lib/orion/hook",
        "/var/lib/orion/hook/0.1.0-0123456789ab/liborion_hook.so", "/var/lib/containerd", "/var/lib/docker/overlay2",
        "/etc/cdi", "/var/run/cdi/x.yaml",
    )},
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_pod_that_cannot_work_is_rejected_with_a_sentence(case: str) -> None:
    given, reason, words = REFUSED[case]
    decision = decide(given)
    assert (decision.outcome, decision.reason) == (Outcome.REFUSED, reason), decision
    assert words in decision.sentence


def test_a_container_without_slots_may_have_a_loader_list_of_its_own() -> None:
    assert decide(pod(GPU, {"volumeMounts": LIST})).outcome is Outcome.PATCHED


@pytest.mark.parametrize(
    "path", ["/data", "/dev/shm", "/tmp", "/dev/infiniband", "/runtime", "/var/log", "/mnt/nvidia"]
)
def test_other_paths_of_the_node_may_be_mounted(path: str) -> None:
    assert decide(host_path(path)).outcome is Outcome.PATCHED


def test_another_root_folder_of_the_kubelet_is_forbidden_as_well() -> None:
    for path in ("/data/kubelet", "/data/kubelet/pods", "/data", "/var/lib/kubelet/device-plugins"):
        decision = decide(host_path(path), kubelet_root="/data/kubelet")
        assert decision.reason is Reason.HOST_PATH, path
        assert "the kubelet's sockets" in decision.sentence
    assert decide(host_path("/data/set"), kubelet_root="/data/kubelet").outcome is Outcome.PATCHED


def test_a_container_without_slots_may_set_visible_devices_to_none() -> None:
    none = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}
    assert decide(pod(GPU, none)).outcome is Outcome.PATCHED
    assert decide(pod({**GPU, **none})).outcome is Outcome.REFUSED
