"""Tenants under the pod security standard `restricted` use the hook, and reach nothing of Orion but their own slot."""

import subprocess
from pathlib import Path

import pytest
from kubernetes import client

from testbed.node import Node
from testbed.orion import Orion
from tests.cluster.conftest import Kubectl
from tests.node.gpu_tenants import GpuNode, Manifest, Tenants, serving, training
from tests.node.running_pod import RunningPod
from tests.node.shell_pods import shell_pod
from tests.waiting import eventually

pytestmark = pytest.mark.node

UNKNOWN_USER = 2_000_000_000
""" A user id that exists nowhere on the node. """


def as_unknown_user(pod: Manifest) -> Manifest:
    pod["spec"]["securityContext"] |= {"runAsUser": UNKNOWN_USER, "runAsGroup": UNKNOWN_USER}
    return pod


def status_of(process: Path) -> dict[str, str]:
    lines = (line.partition(":") for line in (process / "status").read_text().splitlines())
    return {name: value.strip() for name, _, value in lines}


def reached(process: Path) -> list[tuple[str, bool]]:
    """A process's mounts of Orion's folders on the node: the mount point, and whether it is writable."""
    fields = (line.split() for line in (process / "mountinfo").read_text().splitlines())
    # number, parent, device, root, mount point, options: root is the folder within the mounted file system.
    # The node's own folders are in a folder of this machine; the names in that folder's path do not count.
    ours = (each for each in fields if {"orion", "orion-sim"} & set(each[3].rpartition("/nodes/")[2].split("/")))
    return sorted((each[4], "ro" not in each[5].split(",")) for each in ours)


def check_inside(tenants: Tenants, gpus: GpuNode, name: str) -> None:
    uuid = tenants.begun(name)["gpu"]
    pod = RunningPod.of(gpus, tenants.pods()[name])
    joined = pod.joined_client()
    assert joined.gpu == uuid
    assert len(pod.slot().clients) == 1
    eventually(lambda: gpus.condition(uuid, "HookInjected")["status"] == "True")

    process = gpus.path(f"/proc/{joined.process_id}")
    status = status_of(process)
    assert status["Uid"].split() == [str(UNKNOWN_USER)] * 4
    assert (int(status["CapEff"], 16), int(status["CapBnd"], 16), status["NoNewPrivs"]) == (0, 0, "1")

    slot, mps = f"/run/orion/slots/{uuid}", f"/run/orion/mps/{uuid}"
    libraries = [f"/usr/{folder}/libcuda.so.1" for folder in ("lib/x86_64-linux-gnu", "lib64")]
    read_only = [("/run/orion/lib", False), (slot, False), (mps, False), *((library, False) for library in libraries)]
    assert reached(process) == sorted([*read_only, ("/run/orion-sim", True)])
    inside = process / "root"
    sockets = [path for path in inside.glob("run/orion/**/*") if path.is_socket()]
    assert sorted(sockets) == [inside / slot[1:] / name for name in ("agent.sock", "notices.sock")]
    assert not list((inside / mps[1:]).iterdir())  # the GPU is not in mode mps
    for folder in (slot, mps, "/run/orion/lib", "/run/orion", "/"):
        with pytest.raises(OSError, match="Read-only file system"):
            (inside / folder[1:] / "anything").touch()


def test_tenants_under_restricted_are_managed_and_reach_their_own_slot_only(
    orion: Orion, node: Node, api: client.ApiClient, namespace: str, kubectl: Kubectl
) -> None:
    enforced = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    client.CoreV1Api(api).patch_namespace(namespace, enforced)
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        kubectl("create", "-f", "-", given=shell_pod("lax", "sleep 1"))
    assert "violates PodSecurity" in refusal.value.stderr
    tenants, gpus = Tenants(api, namespace), GpuNode(node, api)
    tenants.create(as_unknown_user(serving()), as_unknown_user(training()))
    for name in ("serve", "train"):
        check_inside(tenants, gpus, name)
