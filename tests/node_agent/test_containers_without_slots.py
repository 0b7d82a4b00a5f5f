"""A container that runs under a claim without its slot is named; the processes are files."""

from pathlib import Path
from typing import Any

from orion.node_agent.cluster.reporting.events import Subject
from orion.node_agent.cluster.reporting.slotless import SlotlessContainers, slots_of_containers
from orion.node_agent.slots.holders import Holder

GPU = "GPU-00000000-0000-4000-8000-000000000000"
UID = "5e4f6a2c-0d1b-4c3a-9f8e-7b6a5d4c3b2a"
HOLDER = Holder("team", "train", "main", UID)


def process(proc: Path, number: int, container: str, slot: str = "", uid: str = UID) -> None:
    folder = proc / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup").write_text(f"0::/kubepods/pod{uid}/abc\n")
    log = f"20 1 8:1 /lib/kubelet/pods/{uid}/containers/{container}/5f2 /dev/termination-log rw - ext4 x rw\n"
    mount = f"21 1 0:5 /orion/gpus/{GPU}/{slot} /run/orion/slots/{GPU} ro - tmpfs tmpfs rw\n"
    (folder / "mountinfo").write_text((log if container else "") + (mount if slot else ""))


class State:
    def containers_of_claims(self) -> dict[Holder, frozenset[tuple[str, str]]]:
        return {HOLDER: frozenset({(GPU, "be-1")})}


class Posted:
    def __init__(self) -> None:
        self.found: list[tuple[str, str, str]] = []

    def post(self, about: Subject, reason: str, note: str, **_: Any) -> None:
        self.found.append((about.name, reason, note))


def made(proc: Path) -> tuple[SlotlessContainers, Posted]:
    state: Any = State()
    events: Any = Posted()
    return SlotlessContainers(state, events, proc), events


async def test_a_container_without_its_slot_is_named_after_a_while(tmp_path: Path) -> None:
    looking, events = made(tmp_path)
    process(tmp_path, 1, "")  # the pod's sandbox
    await looking.look(100.0)
    process(tmp_path, 2, "main")
    process(tmp_path, 3, "sidecar", "be-1")
    await looking.look(110.0)
    assert events.found == []
    await looking.look(115.0)
    ((name, reason, note),) = events.found
    assert (name, reason) == ("train", "ContainerWithoutSlot")
    assert "container main runs without the slot of its claim" in note


async def test_a_container_with_its_slot_is_not_looked_at_again(tmp_path: Path) -> None:
    looking, events = made(tmp_path)
    process(tmp_path, 2, "main", "be-1")
    await looking.look(100.0)
    process(tmp_path, 2, "main")
    for now in (110.0, 120.0):
        await looking.look(now)
    assert events.found == []


async def test_another_slot_is_not_that_of_the_claim(tmp_path: Path) -> None:
    looking, events = made(tmp_path)
    process(tmp_path, 2, "main", "be-2")
    for now in (100.0, 110.0):
        await looking.look(now)
    assert len(events.found) == 1


def test_only_the_pods_that_are_asked_for_are_looked_at(tmp_path: Path) -> None:
    other = UID.replace("5e4f", "0000")
    process(tmp_path, 2, "main", "be-1")
    process(tmp_path, 3, "main", "be-2", other)
    (tmp_path / "self").mkdir()
    assert slots_of_containers([UID], tmp_path) == {(UID, "main"): {(GPU, "be-1")}}


def test_mounts_that_name_another_pod_do_not_count(tmp_path: Path) -> None:
    other = UID.replace("5e4f", "0000")
    process(tmp_path, 2, "main", "be-1")
    (tmp_path / "2" / "cgroup").write_text(f"0::/kubepods/pod{other}/abc\n")
    assert slots_of_containers([UID, other], tmp_path) == {}
