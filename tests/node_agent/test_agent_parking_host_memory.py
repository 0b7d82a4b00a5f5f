"""Tenants for which host memory is too short, and tenants that keep room: what the agent does and reports."""

import os
import re
from pathlib import Path

import pytest

from orion.hook.join import CreditAnswer
from orion.hook.layout import ParkingState
from orion.node_agent.api import agent_pb2
from tests.node_agent.cgroup_tree import CgroupTree
from tests.node_agent.conftest import GPU, eventually
from tests.node_agent.fake_card import MIB, ask_for_room, wait_for_room
from tests.node_agent.parking_cards import GIB, QUICK, Cards


@pytest.fixture
def tree(cards: Cards, tmp_path: Path) -> CgroupTree:
    """The cgroup of all tenants, and the agent that looks at it."""
    made = CgroupTree(tmp_path / "cgroups")
    made.has(os.getpid())
    cards.agent.kill()
    cards.agent.start(*QUICK, "--cgroups", str(made.hierarchy))
    return made


def test_who_does_not_fit_into_host_memory_is_passed_over_and_looked_at_again(cards: Cards, tree: CgroupTree) -> None:
    tree.allows(6000, used=4000, files=1500)  # 3,500 MiB
    short, fits = cards.be("be-0", 4500), cards.be("be-1", 3400).obey()
    hp = cards.hp()
    assert wait_for_room(hp, 3000 * MIB) is CreditAnswer.YES
    assert (fits.state, short.park) == (ParkingState.PARKED, 0)
    tree.allows(2000)
    assert cards.hold(hp, 3400)
    refused: list[agent_pb2.Slot] = []

    def is_refused() -> bool:
        ask_for_room(hp, 3000 * MIB)
        refused.append(cards.slot("be-0"))
        return refused[-1].parking.state == "refused"

    eventually(is_refused)
    ((condition,),) = [client.conditions for client in refused[-1].clients]
    assert condition.reason == "HostMemoryShort"
    assert (
        f"4.39 GiB of it would move to host memory, and its cgroup {tree.name} has 1.95 GiB left" in condition.message
    )
    assert refused[-1].parking.reason == condition.message
    assert short.park == 0, "it was never asked"
    tree.allows(6000)
    short.obey()
    eventually(lambda: ask_for_room(hp, 3000 * MIB) is CreditAnswer.YES)
    short.reaches(ParkingState.PARKED)
    eventually(lambda: not cards.conditions("be-0"))


def test_what_a_tenant_holds_beyond_a_lowered_limit_must_fit_into_host_memory(cards: Cards, tree: CgroupTree) -> None:
    tree.allows(3000)
    tenant = cards.be("be-0", 5000, limit=6 * GIB)
    cards.card.lists(os.getpid(), 5120)
    eventually(lambda: cards.slot("be-0").clients[0].memory_bytes == 5 * GIB, "the agent has asked the driver")
    tenant.says(5500)  # it has grown since
    cards.card.lists(os.getpid(), 5500)
    with cards.administrator() as administrator:
        administrator.set_grant(GPU, "be-0", memory_parks=True, memory_limit_bytes=GIB)
        administrator.park_slot(GPU, "be-0", away=True)
    eventually(lambda: "HostMemoryShort" in cards.conditions("be-0"))
    # What it has in all, with the driver's own 120 MiB of the first answer if the driver has not said more since.
    assert re.search(r"5\.(37|49) GiB of it would move", cards.conditions("be-0")["HostMemoryShort"])
    assert tenant.park == 0


def test_a_person_sends_nobody_away_for_whom_host_memory_is_too_short(cards: Cards, tree: CgroupTree) -> None:
    tree.allows(2900)
    tenant = cards.be("be-0", 3000).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        eventually(cards.is_in("be-0", "refused"))
        assert tree.name in cards.parking("be-0").reason
        tree.allows(3000)
        administrator.park_slot(GPU, "be-0", away=True)
        assert cards.parking("be-0").state != "refused", "nobody reads the answer to an earlier wish"
    tenant.reaches(ParkingState.PARKED)
    eventually(cards.is_in("be-0", "parked"))


def test_a_process_that_joins_a_leaving_slot_stays_if_it_does_not_fit_and_the_others_come_back(
    cards: Cards, tree: CgroupTree
) -> None:
    tree.allows(6000)
    hp, first = cards.hp(3000), cards.be("be-0", 4000).obey()
    assert wait_for_room(hp, 3000 * MIB) is CreditAnswer.YES
    first.reaches(ParkingState.PARKED)
    tree.allows(6000, used=4000)
    late = cards.joins(first, 3000)
    assert (late.stays, late.park) == (True, 0)
    late.obey()
    eventually(lambda: "HostMemoryShort" in cards.conditions("be-0"))
    assert "2.93 GiB of it would move to host memory" in cards.conditions("be-0")["HostMemoryShort"]
    assert cards.hold(hp, 0)
    first.reaches(ParkingState.RUNNING)
    assert (first.park % 2, late.stays, late.moved) == (0, False, [])
    eventually(lambda: not cards.conditions("be-0"))


def test_the_first_process_of_another_slot_stays_if_it_does_not_fit(cards: Cards, tree: CgroupTree) -> None:
    tree.allows(6000)
    hp, first = cards.hp(3000), cards.of_this_process("a", 4000).obey()
    assert wait_for_room(hp, 3000 * MIB) is CreditAnswer.YES
    assert cards.hold(hp, 5000)
    eventually(cards.is_in("a", "parked"))
    tree.allows(6000, used=4000)
    late = cards.of_this_process("b", 3000).obey()
    eventually(lambda: "HostMemoryShort" in cards.conditions("b"))
    assert "2.93 GiB of it would move to host memory" in cards.conditions("b")["HostMemoryShort"]
    assert (late.stays, late.moved) == (True, [])
    cards.leaves(hp)
    first.reaches(ParkingState.RUNNING)
    eventually(lambda: not late.stays)
    assert late.moved == []


def test_a_process_that_joins_a_leaving_slot_and_fits_leaves_too(cards: Cards, tree: CgroupTree) -> None:
    tree.allows(6000)
    hp, first = cards.hp(3000), cards.be("be-0", 4000).obey()
    first.stops_before = ParkingState.PARKED
    assert ask_for_room(hp, 3000 * MIB) is CreditAnswer.LATER
    first.reaches(ParkingState.LEAVING)
    tree.allows(6000, used=1500)  # 4,000 MiB of what is left are for the one that leaves now
    cards.joins(first, 100).obey().reaches(ParkingState.PARKED)
    short = cards.joins(first, 800).obey()
    eventually(lambda: "HostMemoryShort" in cards.conditions("be-0"))
    assert (short.stays, short.moved) == (True, [])
    first.stops_before = None
    first.reaches(ParkingState.PARKED)
    assert cards.hold(hp, 7000)  # so the others cannot come back
    tree.allows(6000)
    short.reaches(ParkingState.PARKED)
    eventually(cards.is_in("be-0", "parked"))


def test_a_process_stays_until_it_says_what_it_holds_also_for_the_next_agent(cards: Cards, tree: CgroupTree) -> None:
    tree.allows(6000)
    first = cards.be("be-0", 4000).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
    first.reaches(ParkingState.PARKED)
    late = cards.joins(first, 100, says=False).obey()
    cards.restart("--cgroups", str(tree.hierarchy))
    assert (late.stays, late.state) == (True, ParkingState.RUNNING)
    late.says(100)
    late.reaches(ParkingState.PARKED)


def test_cgroups_that_are_not_visible_stop_nobody(cards: Cards, tree: CgroupTree) -> None:
    tree.has(1)
    tree.allows(1)
    tenant = cards.be("be-0", 3000).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
    tenant.reaches(ParkingState.PARKED)
