"""The node itself fails: it loses its power, files vanish or are not what they should be, and /run is full."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.hook import simulated
from testbed.node import Node
from testbed.orion import Orion
from tests.node.disturbed_pods import LIMIT, REPORT, Occupants, kubelet_log, registrations, wait_until_registered
from tests.node.gpu_tenants import deployed, serving, training
from tests.node.seen_from_below import RunningPod
from tests.waiting import eventually

pytestmark = pytest.mark.node

SOCKETS = "/var/lib/kubelet/device-plugins"
HOOK = "/var/lib/orion/hook"
NO_SPACE = "no space left on device"


def test_sockets_that_are_wiped_are_made_again(computing: Occupants, orion: Orion, node: Node) -> None:
    before = computing.seats()
    registered = registrations(orion, node)
    node.run(["sh", "-c", f"rm {SOCKETS}/orion-*.sock"])
    wait_until_registered(orion, node, since=registered)
    computing.books.settle()
    node.run(["sh", "-c", f"rm {SOCKETS}/*.sock"])
    computing.create(training("between", **REPORT))  # the kubelet has its connections, and needs no sockets for them
    registered = registrations(orion, node)
    node.restart("kubelet")
    wait_until_registered(orion, node, since=registered)
    computing.books.settle()
    computing.create(training("after", **REPORT))
    computing.compute()
    seats = computing.seats()
    assert {name: seats[name] for name in before} == before
    computing.books.settle()


@pytest.mark.parametrize("first", ["orion", pytest.param("kubelet", marks=pytest.mark.thorough)])
def test_pods_are_back_when_their_node_has_been_without_power(
    occupants: Occupants, orion: Orion, node: Node, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet fails pods that it finds before the plugin has registered; who made them replaces them."""
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
    orion.end_on(node, patience=0)  # as the power's end would; they are children of this process
    node.reboot()
    if first == "kubelet":
        orion.start_on(node)
    eventually(lambda: occupants.managed() == 3)
    occupants.books.settle()
    for pod in occupants.live():
        pod.computes()


def test_what_the_runtime_made_as_folders_in_the_place_of_missing_files_are_files_again(
    computing: Occupants, orion: Orion, node: Node
) -> None:
    """A kubelet that has just started has a container begin again without a word to a plugin that is not there yet."""
    before, train = computing.seats(), computing.pods["train"]
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
    seats = computing.seats()
    assert seats["serve"] == before["serve"]
    assert (seats["train"].gpu, seats["train"].slot) == (before["train"].gpu, before["train"].slot)
    train.is_granted(LIMIT)
    node.run(["test", "-f", library])
    computing.compute()
    computing.books.settle()


def driver_of(pod: RunningPod) -> str:
    """Return where below the folder of the hook's versions a pod's driver lies."""
    (process,) = pod.processes()
    mounts = pod.gpu_node.path(f"/proc/{process}/mountinfo").read_text().splitlines()
    (source,) = {mount.split()[3] for mount in mounts if mount.split()[4] == simulated.CONTAINER_LIBRARIES[0]}
    return "/".join(Path(source).parts[-2:])


@pytest.fixture
def full(node: Node) -> Iterator[contextlib.ExitStack]:
    """Fills /run to the last byte and file, until it is closed."""
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


def test_a_full_run_harms_no_pod_and_what_could_not_begin_begins_when_there_is_room(
    computing: Occupants, full: contextlib.ExitStack
) -> None:
    before = computing.seats()
    computing.tenants.create(training("new", **REPORT))
    eventually(lambda: NO_SPACE in computing.complaints("new"))
    computing.compute()
    full.close()
    computing.begins_soon("new")
    computing.compute()
    seats = computing.seats()
    assert {name: seats[name] for name in before} == before
    computing.books.settle()
