"""A slot that a person has parked: what its processes may do meanwhile, and how it ends."""

import pytest

from orion.hook import layout
from orion.hook.join import CreditAnswer, MessageType
from orion.hook.layout import ParkingState
from orion.node_agent.api.client import RequestRefused
from tests.node_agent.conftest import GPU, eventually
from tests.node_agent.fake_card import MIB, ask_for_room, wait_for_room
from tests.node_agent.parking_cards import Cards
from tests.node_agent.protocol_client import ProtocolClient


def test_a_person_keeps_a_tenant_away_until_the_person_wants_it_back(cards: Cards) -> None:
    tenant = cards.be("be-0", 1024).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        eventually(cards.is_in("be-0", "parked"))
        assert cards.parking("be-0").wished
        cards.restart()
    with cards.administrator() as administrator:
        eventually(cards.is_in("be-0", "parked"))
        administrator.park_slot(GPU, "be-0", away=False)
        tenant.reaches(ParkingState.RUNNING)
        with pytest.raises(RequestRefused, match="it is for hp"):
            administrator.park_slot(GPU, "hp-0", away=True)
        with pytest.raises(RequestRefused, match="has no slot 'be-99'"):
            administrator.park_slot(GPU, "be-99", away=True)
        administrator.set_grant(GPU, "be-1", memory_parks=True)
        with pytest.raises(RequestRefused, match="no process uses slot be-1"):
            administrator.park_slot(GPU, "be-1", away=True)


def test_a_new_process_of_a_parked_slot_is_asked(cards: Cards) -> None:
    cards.be("be-0", 1024).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        eventually(cards.is_in("be-0", "parked"))
        second = cards.be("be-0", 10)
        kinds = set()
        while MessageType.PARK not in kinds:
            kinds.add(second.receive_message().head.type)
        second.obey().reaches(ParkingState.PARKED)
        administrator.park_slot(GPU, "be-0", away=False)
        second.reaches(ParkingState.RUNNING)


def test_a_slot_whose_holder_ends_while_parked_begins_again(cards: Cards) -> None:
    tenant = cards.be("be-0", 1024).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        eventually(cards.is_in("be-0", "parked"))
        tenant.rest()
        administrator.prepare_slot(GPU, "be-0")
    with ProtocolClient(cards.agent.slot("be-0")).join() as new:
        assert new.grant.get(layout.GrantPage, "park") % 2 == 0
    shown = cards.slot("be-0")
    assert (shown.parking.state, shown.parking.wished, shown.memory_parks) == ("", False, False)


def test_a_slot_whose_processes_are_away_is_not_closed_by_hand(cards: Cards) -> None:
    tenant = cards.be("be-0", 1024).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        tenant.reaches(ParkingState.PARKED)
        with pytest.raises(RequestRefused, match="orion unpark be-0"):
            administrator.close_slot(GPU, "be-0")
        administrator.park_slot(GPU, "be-0", away=False)
        tenant.reaches(ParkingState.RUNNING)
        eventually(cards.is_in("be-0", ""))
        administrator.close_slot(GPU, "be-0")


def test_the_last_process_of_a_parked_slot_ends(cards: Cards) -> None:
    tenant = cards.be("be-0", 1024).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        eventually(cards.is_in("be-0", "parked"))
    tenant.close()
    cards.clients.remove(tenant)
    eventually(cards.is_in("be-0", ""), cards.agent.log())


def test_a_tenant_that_may_leave_no_more_is_watched_until_it_is_back(cards: Cards) -> None:
    hp, tenant = cards.hp(), cards.be("be-0", 6000).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        eventually(cards.is_in("be-0", "parked"))
        tenant.stops_before = ParkingState.RUNNING
        administrator.set_grant(GPU, "be-0", memory_parks=False)
        administrator.park_slot(GPU, "be-0", away=False)
        eventually(cards.is_in("be-0", "returning"))
        administrator.park_slot(GPU, "be-0", away=False)  # the agent looks again
        assert ask_for_room(hp, 7000 * MIB) is CreditAnswer.LATER, "the room is not there yet"
        assert hp.grant.get(layout.GrantPage, "returning_mib") == 6000
    tenant.stops_before = None
    tenant.reaches(ParkingState.RUNNING)
    eventually(lambda: cards.slot("be-0").clients[0].state != "parked")
    eventually(lambda: hp.grant.get(layout.GrantPage, "returning_mib") == 0)
    eventually(cards.is_in("be-0", ""))


def test_a_slot_whose_first_process_joins_a_parked_tenant_is_asked_too(cards: Cards) -> None:
    hp, first = cards.hp(1000), cards.of_this_process("a", 4000).obey()
    assert wait_for_room(hp, 4500 * MIB) is CreditAnswer.YES
    assert cards.hold(hp, 4500)
    eventually(cards.is_in("a", "parked"))
    second = cards.of_this_process("b", 2000).obey()
    second.reaches(ParkingState.PARKED)
    eventually(cards.is_in("b", "parked"))
    second.record.set(layout.RecordPage, "memory_bytes", 0)
    assert wait_for_room(hp, 3000 * MIB) is CreditAnswer.YES
    assert cards.parking("b").bytes == 6000 * MIB, "what it had counts, whatever it says"
    cards.leaves(hp)
    first.reaches(ParkingState.RUNNING)
    second.reaches(ParkingState.RUNNING)


def test_hp_waits_for_a_slot_whose_first_process_joins_a_parked_tenant(cards: Cards) -> None:
    hp, _ = cards.hp(1000), cards.of_this_process("a", 4000).obey()
    assert wait_for_room(hp, 4500 * MIB) is CreditAnswer.YES
    assert cards.hold(hp, 4500)
    eventually(cards.is_in("a", "parked"))
    second = cards.of_this_process("b", 2000)
    eventually(lambda: second.park == 1)
    assert ask_for_room(hp, 3000 * MIB) is CreditAnswer.LATER
    second.obey()
    assert wait_for_room(hp, 3000 * MIB) is CreditAnswer.YES
