"""The node itself fails: it loses power, files are missing or have become folders, or /run is full."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.hook import simulated
from testbed.node import Node
from testbed.orion import Orion
from tests.node.disturbed_pods import LIMIT, REPORT, Occupants, kubelet_log, registrations, wait_until_registered
from tests.node.gpu_tenants import deployed, serving, training
from tests.node.running_pod import RunningPod
from tests.waiting import eventually

pytestmark = pytest.mark.node

SOCKETS = "/var/lib/kubelet/device-plugins"
HOOK = "/var/lib/orion/hook"
NO_SPACE = "no space left on device"


def test_deleted_sockets_are_made_again(computing: Occupants, orion: Orion, node: Node) -> None:
    before = computing.clients()
    registered = registrations(orion, node)
    node.run(["sh", "-c", f"rm {SOCKETS}/orion-*.sock"])
    wait_until_registered(orion, node, since=registered)
    computing.books.settle()
    node.run(["sh", "-c", f"rm {SOCKETS}/*.sock"])
    computing.create(training("between", **REPORT))  # the kubelet uses its open connections, so it needs no sockets
    registered = registrations(orion, node)
    node.restart("kubelet")
    wait_until_registered(orion, node, since=registered)
    computing.books.settle()
    computing.create(training("after", **REPORT))
    computing.compute()
    clients = computing.clients()
    assert {name: clients[name] for name in before} == before
    computing.books.settle()


@pytest.mark.parametrize("first", ["orion", pytest.param("kubelet", marks=pytest.mark.thorough)])
def test_pods_run_again_after_their_node_lost_power(
    occupants: Occupants, orion: Orion, node: Node, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet fails pods that it finds before the plugin has registered; their controllers replace them."""
    occupants.tenants.create(deployed(serving(**REPORT), 1), deployed(training(**REPORT), 2))
    eventually(lambda: occupants.managed() == 3)
    occupants.books.settle()
    begin = node.begin

    def begin_orion_before_the_kubelet(component: str) -> None:
        if component == "kubelet":
            orion.start_on(node)
        begin(component)

    if first == "orion":
        monkeypatch.setattr(node, "begin", begin_orion_before_the_kubelet)
    orion.end_on(node, patience=0)  # as without power; Orion's processes are children of this process
    node.reboot()
    if first == "kubelet":
        orion.start_on(node)
    eventually(lambda: occupants.managed() == 3)
    occupants.books.settle()
    for pod in occupants.live():
        pod.computes()


def test_folders_that_the_runtime_made_for_missing_files_become_files_again(
    computing: Occupants, orion: Orion, node: Node
) -> None:
    """A kubelet that has just started restarts a container without calling the plugin, which has not registered yet."""
    before, train = computing.clients(), computing.pods["train"]
    library = f"{HOOK}/{driver_of(train)}"
    orion.end_on(node)
    node.end("kubelet")
    slot = f"/run/orion/gpus/{before['train'].gpu}/{before['train'].slot}"
    node.run(["sh", "-c", f"rm -r {HOOK}/* {slot}"])
    began = len(kubelet_log(node))
    node.begin("kubelet")
    eventually(lambda: f"{train.namespace}/train" in kubelet_log(node)[began:])
    train.kill()
    eventually(lambda: node.run(["sh", "-c", f"ls -d {library}/ {slot}/ 2>/dev/null; true"]).count("\n") == 2)
    orion.start_on(node)
    orion.wait_until_advertised(node)
    computing.begins_soon("train")
    clients = computing.clients()
    assert clients["serve"] == before["serve"]
    assert (clients["train"].gpu, clients["train"].slot) == (before["train"].gpu, before["train"].slot)
    train.is_granted(LIMIT)
    node.run(["test", "-f", library])
    computing.compute()
    computing.books.settle()


def driver_of(pod: RunningPod) -> str:
    """Return the path of a pod's driver below the folder of the hook's versions."""
    (process,) = pod.processes()
    mounts = pod.gpu_node.path(f"/proc/{process}/mountinfo").read_text().splitlines()
    (source,) = {mount.split()[3] for mount in mounts if mount.split()[4] == simulated.CONTAINER_LIBRARIES[0]}
    return "/".join(Path(source).parts[-2:])


@pytest.fixture
def full(node: Node) -> Iterator[contextlib.ExitStack]:
    """Fills all bytes and inodes of /run until the stack is closed."""
    inodes = node.run(["df", "--output=itotal", "/run"]).split()[-1]
    fill = """
        set -e
        mount -o remount,size=$(($(df --output=used /run | tail -1) + 1024))k /run
        mount -o remount,nr_inodes=$(($(df --output=iused /run | tail -1) + 64)) /run
        cat /dev/zero > /run/ballast 2> /dev/null || true
        i=0; while : > /run/ballast.$i; do i=$((i + 1)); done 2> /dev/null; true"""
    empty = f"rm -f /run/ballast*; mount -o remount,size=50%,nr_inodes={inodes} /run"
    with contextlib.ExitStack() as stack:
        stack.callback(node.run, ["sh", "-c", empty])
        node.run(["bash", "-c", fill])
        yield stack


def test_a_full_run_stops_no_running_pod_and_new_pods_start_when_space_is_free(
    computing: Occupants, full: contextlib.ExitStack
) -> None:
    before = computing.clients()
    computing.tenants.create(training("new", **REPORT))
    eventually(lambda: NO_SPACE in computing.complaints("new"))
    computing.compute()
    full.close()
    computing.begins_soon("new")
    computing.compute()
    clients = computing.clients()
    assert {name: clients[name] for name in before} == before
    computing.books.settle()
