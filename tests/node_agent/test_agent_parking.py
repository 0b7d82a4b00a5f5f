"""The agent lets be tenants leave a GPU's memory for hp, and lets them back only where there is room for them."""

import pytest

from orion.hook import layout
from orion.hook.join import CreditAnswer
from orion.hook.layout import ParkingState
from orion.node_agent.api.client import RequestRefused
from tests.node_agent.conftest import GPU, eventually
from tests.node_agent.fake_card import MIB, ask_for_room, wait_for_room
from tests.node_agent.parking_cards import GIB, Cards
from tests.node_agent.protocol_client import ProtocolClient, current_grant


def test_a_tenant_leaves_for_hp_and_comes_back_when_hp_has_freed(cards: Cards) -> None:
    hp = cards.hp(900)
    assert current_grant(hp.grant).memory_wait_ns == 30_000_000_000
    small, large = cards.be("be-0", 2048).obey(), cards.be("be-1", 4500).obey()
    assert not cards.hold(hp, 2048)
    assert wait_for_room(hp, 1148 * MIB) is CreditAnswer.YES
    assert cards.hold(hp, 2048)
    assert (small.state, large.state) == (ParkingState.PARKED, ParkingState.RUNNING)
    eventually(cards.is_in("be-0", "parked"))
    shown = cards.parking("be-0")
    assert (shown.bytes, shown.reason) == (2 * GIB, "")
    assert [client.state for client in cards.slot("be-0").clients] == ["parked"]
    assert cards.hold(hp, 0)
    small.reaches(ParkingState.RUNNING)
    eventually(cards.is_in("be-0", ""))
    assert cards.parking("be-0").total_seconds > 0
    assert small.moved == [ParkingState.LEAVING, ParkingState.PARKED, ParkingState.RETURNING, ParkingState.RUNNING]
    with cards.administrator() as administrator:
        assert administrator.snapshot().gpus[0].parkings == {"left": 1, "returned": 1}


def test_room_that_is_there_is_given_without_anybody_leaving(cards: Cards) -> None:
    tenant, hp = cards.be("be-0", 1024).obey(), cards.hp()
    assert wait_for_room(hp, 2 * GIB) is CreditAnswer.YES
    assert tenant.park == 0


@pytest.mark.parametrize("size", [8 * GIB, 9 * GIB, 2**64 - 1])
def test_hp_learns_at_once_that_nobody_can_make_so_much_room(cards: Cards, size: int) -> None:
    tenant, hp = cards.be("be-0", 1024).obey(), cards.hp()
    assert cards.hold(hp, 1023)
    assert wait_for_room(hp, MIB) is CreditAnswer.YES  # so the driver has been asked since
    assert cards.hold(hp, 1024)
    assert wait_for_room(hp, size) is CreditAnswer.NO
    assert tenant.park == 0


@pytest.mark.parametrize(("held", "size"), [(0, 3 * GIB), (1500, GIB), (2**44 - 1, GIB)])
def test_hp_gets_no_room_beyond_its_limit(cards: Cards, held: int, size: int) -> None:
    cards.be("be-0", 8000).obey()
    hp = cards.hp(limit=2 * GIB)
    hp.record.set(layout.RecordPage, "memory_bytes", held * MIB)
    with ProtocolClient(cards.agent.slot("hp-0")).join() as second:
        second.record.set(layout.RecordPage, "memory_bytes", GIB)
        assert wait_for_room(hp, size) is CreditAnswer.NO


def test_an_allocation_that_can_never_be_harms_no_other_one_of_the_same_process(cards: Cards) -> None:
    assert cards.card.hold("unmanaged", 3000)
    cards.be("be-0", 5000).obey()
    hp, answers = cards.hp(), dict[int, CreditAnswer]()

    def both_are_answered() -> bool:
        for mib in (2000, 6500):
            if mib not in answers and (answer := ask_for_room(hp, mib * MIB)) is not CreditAnswer.LATER:
                answers[mib] = answer
        return len(answers) == 2

    eventually(both_are_answered)
    assert answers == {2000: CreditAnswer.YES, 6500: CreditAnswer.NO}


def test_who_does_not_wait_for_room_gets_none(cards: Cards) -> None:
    tenant, hp = cards.be("be-0", 8000).obey(), cards.hp(wait_ms=0)
    assert ask_for_room(hp, GIB) is CreditAnswer.NO
    with cards.administrator() as administrator:
        administrator.set_grant(GPU, "be-0", memory_parks=False)
    assert ask_for_room(tenant, GIB) is CreditAnswer.NO, "it cannot leave to wait for room"


def test_a_tenant_that_finds_no_room_comes_back_in_its_turn_with_room_for_it(cards: Cards) -> None:
    large, small = cards.be("be-0", 5000).obey(), cards.be("be-1", 2500).obey()
    large.says(6500)  # with what it wants
    assert ask_for_room(large, 1500 * MIB) is CreditAnswer.LATER
    large.reaches(ParkingState.PARKED)
    assert small.state is ParkingState.RUNNING
    assert ask_for_room(large, 1500 * MIB) is CreditAnswer.LATER, "it waits for its turn"
    small.reaches(ParkingState.PARKED)
    large.reaches(ParkingState.RUNNING)
    assert wait_for_room(large, 10) is CreditAnswer.YES


def test_a_tenant_learns_that_it_can_never_have_so_much(cards: Cards) -> None:
    tenant = cards.be("be-0", 6000).obey()
    tenant.says(9000)
    assert wait_for_room(tenant, 3000 * MIB) is CreditAnswer.NO
    assert tenant.park == 0


def test_only_a_slot_that_parks_is_asked(cards: Cards) -> None:
    stays, hp = cards.be("be-0", 7000).obey(), cards.hp()
    with cards.administrator() as administrator:
        administrator.set_grant(GPU, "be-0", memory_parks=False)
    assert wait_for_room(hp, 2 * GIB) is CreditAnswer.NO
    assert stays.park == 0
    with cards.administrator() as administrator, pytest.raises(RequestRefused, match="orion run --park"):
        administrator.park_slot(GPU, "be-0", away=True)


def test_a_second_tenant_waits_for_its_turn_where_both_may_need_all(cards: Cards) -> None:
    first = cards.be("be-0", 5000, limit=6 * GIB).obey()
    second = cards.be("be-1", 100, limit=6 * GIB).obey()
    second.reaches(ParkingState.PARKED)
    second.says(5000)
    first.reaches(ParkingState.PARKED)  # after its stay
    second.reaches(ParkingState.RUNNING)
    first.reaches(ParkingState.RUNNING)


def test_a_tenant_that_fills_the_gpu_comes_back_once_nobody_else_is_there(cards: Cards) -> None:
    tenant = cards.be("be-0", 8100).obey()
    hp = cards.hp()
    assert wait_for_room(hp, 2000 * MIB) is CreditAnswer.YES
    assert cards.hold(hp, 2000)
    tenant.reaches(ParkingState.PARKED)
    cards.leaves(hp)
    tenant.reaches(ParkingState.RUNNING)


def test_people_learn_why_a_tenant_does_not_come_back_to_a_gpu_without_hp(cards: Cards) -> None:
    tenant = cards.be("be-0", 8000).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        tenant.reaches(ParkingState.PARKED)
        assert cards.card.hold("a program without the hook", 300)
        eventually(cards.is_in("be-0", "parked"))
        administrator.park_slot(GPU, "be-0", away=False)
    eventually(lambda: "NoRoomToReturn" in cards.conditions("be-0"))
    assert "it left 7.81 GiB" in cards.conditions("be-0")["NoRoomToReturn"]
    assert tenant.state is ParkingState.PARKED
    assert cards.card.hold("a program without the hook", 0)
    tenant.reaches(ParkingState.RUNNING)
    eventually(lambda: not cards.conditions("be-0"))


def test_an_allocation_of_be_does_not_fail_because_another_one_takes_the_room_that_it_comes_back_for(
    cards: Cards,
) -> None:
    """The driver lists nobody, so it is not known that who comes back has taken its room already."""
    back, other, third = cards.be("be-0", 4000).obey(), cards.be("be-1", 100), cards.be("be-2", 10)
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        back.reaches(ParkingState.PARKED)
        eventually(cards.is_in("be-0", "parked"))
        back.stops_before = ParkingState.RUNNING
        administrator.park_slot(GPU, "be-0", away=False)
    back.reaches(ParkingState.RETURNING)
    assert cards.card.hold(back, 4000)
    other.says(6100)
    assert ask_for_room(other, 6000 * MIB) is CreditAnswer.LATER
    third.says(60)
    assert ask_for_room(third, 50 * MIB) is CreditAnswer.LATER
    eventually(lambda: third.park == 1, "so the agent has decided, also about the other one")
    assert ask_for_room(other, 6000 * MIB) is CreditAnswer.LATER
