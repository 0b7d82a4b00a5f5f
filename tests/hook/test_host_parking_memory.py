"""Real processes under the hook whose memory on the GPU does not fit into host memory."""

import time
from pathlib import Path

import pytest

from orion.hook.layout import ParkingState
from tests.hook.harness import Machine, record_word
from tests.hook.limited_slot import OUT_OF_MEMORY
from tests.hook.scripted_client import Client, eventually
from tests.node_agent.cgroup_tree import CgroupTree

MIB = 1 << 20
HELD = 256
""" What each process allocates, in MiB. """


@pytest.fixture
def tree(tmp_path: Path) -> CgroupTree:
    return CgroupTree(tmp_path / "cgroups")


@pytest.fixture
def machine(bare_machine: Machine, tree: CgroupTree) -> Machine:
    bare_machine.start_agent("--cgroups", str(tree.hierarchy))
    return bare_machine


def start(machine: Machine, slot: str, memory_limit_bytes: int = 0) -> Client:
    machine.agent.set_grant(machine.uuids[0], slot, memory_parks=True, memory_limit_bytes=memory_limit_bytes)
    client = machine.start_in(machine.client_root(slot))
    client.must("init 0")
    client.must(f"alloc {HELD * MIB}")
    client.must("run 2 100")
    machine.until_joined(client)
    return client


def test_processes_stay_that_together_do_not_fit_and_leave_once_they_do(machine: Machine, tree: CgroupTree) -> None:
    both = [start(machine, "be-0"), start(machine, "be-0")]
    tree.has(*(each.pid for each in both))
    tree.allows(3 * HELD // 2)

    def parking() -> tuple[str, str]:
        found = next(slot.parking for slot in machine.agent.snapshot().gpus[0].slots if slot.name == "be-0")
        return found.state, found.reason

    machine.agent.park_slot(machine.uuids[0], "be-0", True)
    eventually(lambda: parking()[0] == "refused", "the slot is refused")
    assert f"its cgroup {tree.name} has 0.38 GiB left" in parking()[1]
    assert [record_word(each, "parking") & 255 for each in both] == [ParkingState.RUNNING] * 2
    for each in both:
        each.must("run 2 100")
    tree.allows(64 * HELD)
    machine.agent.park_slot(machine.uuids[0], "be-0", True)
    eventually(lambda: parking()[0] == "parked", "the slot is parked")


def test_a_process_alone_keeps_to_its_limit_when_it_comes_back_with_its_context(c_build: Path) -> None:
    limit, context = 1024, 256
    with Machine(c_build, contexts_take=context * MIB) as machine:
        machine.start_agent()
        client = start(machine, "be-0", memory_limit_bytes=limit * MIB)
        room = (limit - context - HELD) * MIB
        eventually(lambda: client.do("room").result == room, "its context counts")
        machine.agent.park_slot(machine.uuids[0], "be-0", True)
        eventually(lambda: record_word(client, "parking") & 255 == ParkingState.PARKED, "it is parked")
        asked_twice = time.monotonic() + 5.5  # once a second, and it is believed so once the process is not young
        eventually(lambda: time.monotonic() > asked_twice, "the driver has said twice that it holds nothing")
        client.send(f"alloc {room + 2 * MIB}")
        machine.agent.park_slot(machine.uuids[0], "be-0", False)
        assert client.answer().result == OUT_OF_MEMORY
        client.must(f"alloc {room}")
        shown = machine.shown(client)
        assert shown is not None
        assert shown.memory_bytes == limit * MIB
