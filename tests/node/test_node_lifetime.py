"""A component of a node ends while the others continue; nothing stays after a cluster has ended in any way."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client

from testbed import cgroups, keeping
from testbed.node import Node
from testbed.supervisor import lock_path
from tests.cluster.conftest import Kubectl
from tests.node.shell_pods import shell_pod
from tests.waiting import eventually

pytestmark = pytest.mark.node

ROOT = Path(__file__).parents[2]


def restarts(api: client.ApiClient, namespace: str, name: str) -> int:
    status = client.CoreV1Api(api).read_namespaced_pod(name, namespace).status
    return int(status.container_statuses[0].restart_count)


def began(kubectl: Kubectl, name: str) -> list[str]:
    """The lines of a pod that writes one at each start of its container. Fails if the pod does not answer."""
    return kubectl("exec", name, "--", "cat", "/kept/began").splitlines()


def counting_on(node: Node, kubectl: Kubectl) -> str:
    """A running pod whose file /kept/began has one line for each start of its container."""
    kept = {"volumeMounts": [{"name": "kept", "mountPath": "/kept"}]}
    volumes = [{"name": "kept", "emptyDir": {}}]
    script = "echo begun >> /kept/began; sleep 1000"
    kubectl("create", "-f", "-", given=shell_pod("counting", script, kept, volumes=volumes, nodeName=node.name))
    kubectl("wait", "--for=condition=Ready", "--timeout=50s", "pod/counting")
    return "counting"


@pytest.mark.parametrize("component", ["kubelet", "containerd"])
def test_pods_outlive_a_component_that_is_killed(
    api: client.ApiClient, namespace: str, kubectl: Kubectl, node: Node, component: str
) -> None:
    counting = counting_on(node, kubectl)
    node.restart(component)
    node.wait_until_ready()
    eventually(lambda: answers(kubectl, counting))
    assert began(kubectl, counting) == ["begun"]
    assert restarts(api, namespace, counting) == 0
    assert node.fault() == ""


def answers(kubectl: Kubectl, name: str) -> bool:
    try:
        return bool(began(kubectl, name))
    except subprocess.CalledProcessError:
        return False


def test_pods_begin_again_when_their_node_has_been_without_power(
    api: client.ApiClient, namespace: str, kubectl: Kubectl, second_node: Node
) -> None:
    counting = counting_on(second_node, kubectl)
    second_node.run(["touch", "/run/lost", "/var/lib/orion/kept"])
    agent = second_node.spawn(["sleep", "1000"])
    with second_node.children():  # not started by `node.spawn`, so the node cannot reap it
        plugin = subprocess.Popen(["sleep", "1000"])
    second_node.reboot()
    assert [agent.wait(10), plugin.wait(10)] == [-signal.SIGKILL] * 2
    kept = second_node.run(["sh", "-c", "ls /run/lost /var/lib/orion/kept 2>/dev/null; true"])
    assert kept == "/var/lib/orion/kept\n"
    eventually(lambda: restarts(api, namespace, counting) == 1 and answers(kubectl, counting))
    assert began(kubectl, counting) == ["begun", "begun"]


def test_a_process_that_is_spawned_on_the_node_is_a_child_of_its_caller(node: Node) -> None:
    child = node.spawn(["sh", "-c", "trap 'exit 7' USR1; echo $$; while :; do sleep 0.01; done"], stdout=-1, text=True)
    assert child.stdout
    with child.stdout:
        inner = int(child.stdout.readline())
    assert inner != child.pid  # the process id inside the node
    assert f"NSpid:\t{child.pid}\t{inner}" in Path(f"/proc/{child.pid}/status").read_text()
    child.send_signal(signal.SIGUSR1)
    assert child.wait(10) == 7
    with pytest.raises(subprocess.CalledProcessError) as failure:
        node.run(["sh", "-c", "echo no >&2; exit 3"])
    assert (failure.value.returncode, failure.value.stderr) == (3, "no\n")


def test_the_host_sees_the_processes_of_pods(kubectl: Kubectl, node: Node) -> None:
    kubectl("create", "-f", "-", given=shell_pod("seen", "exec sleep 4711"))
    eventually(lambda: "sleep 4711" in node.run(["ps", "-e", "-o", "args"]))


# -- What stays --------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder() -> Iterator[Path]:
    parent = Path(tempfile.mkdtemp(prefix="orion-lifetime-"))
    yield parent / "cluster"
    keeping.stop(parent / "cluster")
    shutil.rmtree(parent)


def left_of(folder: Path, number: str) -> list[str]:
    """The processes, mounts, interfaces, cgroups and files of a cluster that still exist."""
    processes = subprocess.run(["ps", "-e", "-o", "args"], capture_output=True, text=True, check=True).stdout
    found = [line for line in processes.splitlines() if str(folder) in line]
    found += [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(folder) in line]
    found += [line for line in interfaces() if str(folder) in line]
    # Another cluster may have the same number by now; then an interface of that name exists.
    taken_over = any(f" orion{number}@" in line for line in interfaces())
    found += [] if taken_over else cgroups.found(f"orion-{number}")
    return found + [path.name for path in folder.parent.iterdir() if path.suffix != ".gate"]


def interfaces() -> list[str]:
    listed = subprocess.run(["ip", "-oneline", "link"], capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


def number_of(folder: Path) -> str:
    """The number of a running cluster on this machine; the names of its interface and cgroups contain the number."""
    kubelet = next((folder / "nodes").glob("*/settings/kubelet.json")).read_text()
    return kubelet.split('"/orion-')[1].split("/")[0]


def a_cluster_with_a_pod(folder: Path, *options: str) -> str:
    """Start a cluster with a node and a running pod, as `make cluster` does; return its number."""

    def command(*words: str) -> str:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        return done.stdout

    tool = (sys.executable, "-m", "testbed")
    printed = command(*tool, "up", "--folder", str(folder), *options).splitlines()
    assert f"  export KUBECONFIG={folder / 'kubeconfig'}" in printed
    kubectl = next(line for line in printed if line.endswith(" get nodes")).split()[0]
    settings = ("--kubeconfig", str(folder / "kubeconfig"))
    assert command(kubectl, *settings, "get", "nodes").count(" Ready ") == 1
    arguments = ("run", "left", "--image=localhost/orion/shell:1", "--restart=Never", "--", "sleep", "1000")
    command(kubectl, *settings, *arguments)
    command(kubectl, *settings, "wait", "--for=condition=Ready", "--timeout=50s", "pod/left")
    names = command(*tool, "on", "--folder", str(folder), "node-1", "--", "hostname")
    assert names == "node-1\n"
    return number_of(folder)


@pytest.mark.thorough
def test_nothing_stays_of_a_cluster_that_is_ended(folder: Path) -> None:
    number = a_cluster_with_a_pod(folder)
    assert left_of(folder, number)
    down = [sys.executable, "-m", "testbed", "down", "--folder", str(folder)]
    assert "ended" in subprocess.run(down, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    assert left_of(folder, number) == []


@pytest.mark.thorough
def test_no_process_mount_or_interface_stays_of_a_cluster_whose_supervisor_is_killed(folder: Path) -> None:
    number = a_cluster_with_a_pod(folder, "--no-orion")
    os.kill(int(lock_path(folder).read_text()), signal.SIGKILL)
    files = {folder.name + suffix for suffix in ("", ".lock", ".log")} | {f"/orion-{number}"}
    eventually(lambda: set(left_of(folder, number)) <= files, what=str(left_of(folder, number)))
    assert not keeping.stop(folder)  # removes the files and the empty cgroups
    assert left_of(folder, number) == []
