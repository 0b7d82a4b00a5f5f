"""Tenants that should have left and keep room that others need: when the agent says so."""

import os

import pytest

from orion.hook.join import CreditAnswer
from orion.hook.layout import ParkingReason, ParkingState
from tests.node_agent.conftest import GPU, eventually
from tests.node_agent.fake_card import MIB, Tenant, ask_for_room
from tests.node_agent.parking_cards import QUICK, Cards
from tests.node_agent.protocol_client import ProtocolClient

LATER = ("--parking-retry-seconds", "3600")


@pytest.fixture
def patient(cards: Cards) -> Cards:
    """The agent asks nobody again during the test."""
    cards.agent.kill()
    cards.agent.start(*QUICK, *LATER)
    return cards


def refuse(tenant: Tenant, reason: ParkingReason, times: set[int]) -> None:
    """Refuse each wish to leave once."""
    number = tenant.park
    if number % 2 and number not in times:
        times.add(number)
        tenant.answer(ParkingState.REFUSED, reason, number=number)


def keeps_room(cards: Cards, hp: ProtocolClient) -> bool:
    ask_for_room(hp, 3000 * MIB)
    return cards.parking("be-0").keeps_room


def refused_until_it_keeps_room(cards: Cards, reason: ParkingReason) -> set[int]:
    """Refuse to leave for hp until the agent says that the slot keeps room; return the wishes that were refused."""
    tenant, hp, times = cards.be("be-0", 6000), cards.hp(), set[int]()

    def keeps() -> bool:
        refuse(tenant, reason, times)
        return keeps_room(cards, hp)

    eventually(keeps)
    return times


def test_who_will_never_leave_keeps_room_at_once_if_hp_needs_it(patient: Cards) -> None:
    times = refused_until_it_keeps_room(patient, ParkingReason.MANAGED)
    assert len(times) == 1


def test_who_refuses_only_for_now_keeps_no_room_yet(patient: Cards) -> None:
    tenant, hp, times = patient.be("be-0", 6000), patient.hp(), set[int]()

    def is_refused() -> bool:
        refuse(tenant, ParkingReason.BUSY, times)
        assert not keeps_room(patient, hp)
        return patient.is_in("be-0", "refused")()

    eventually(is_refused)
    eventually(lambda: ask_for_room(hp, 3000 * MIB) is CreditAnswer.NO)
    assert not keeps_room(patient, hp)


def test_who_refuses_again_when_it_is_asked_again_keeps_room(cards: Cards) -> None:
    times = refused_until_it_keeps_room(cards, ParkingReason.BUSY)
    assert len(times) > 1


def test_who_does_not_answer_keeps_room_once_it_has_been_silent_for_long(cards: Cards) -> None:
    silent, hp = cards.be("be-0", 6000), cards.hp()
    eventually(lambda: keeps_room(cards, hp))
    assert silent.park == 2
    silent.obey()
    eventually(lambda: ask_for_room(hp, 3000 * MIB) is CreditAnswer.YES)
    eventually(lambda: not cards.parking("be-0").keeps_room)


def test_who_says_that_its_memory_is_lost_keeps_room_if_the_driver_lists_it(cards: Cards) -> None:
    liar, hp = cards.be("be-0", 6000), cards.hp()
    cards.card.lists(os.getpid(), 6000)
    liar.answer(ParkingState.LOST)
    eventually(lambda: keeps_room(cards, hp))
    assert "lost, but the driver lists memory" in cards.conditions("be-0")["ParkRefused"]
    assert liar.park >= 2, "it was asked to leave"


def test_who_stays_silent_keeps_no_room_once_hp_needs_it_no_longer(cards: Cards) -> None:
    cards.be("be-0", 6000)
    hp = cards.hp()
    eventually(lambda: keeps_room(cards, hp))
    eventually(lambda: not cards.parking("be-0").keeps_room)
    assert cards.parking("be-0").state == "refused"


def test_who_refuses_a_person_keeps_no_room(patient: Cards) -> None:
    tenant, hp = patient.be("be-0", 6000), patient.hp()
    with patient.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
    eventually(lambda: tenant.park == 1)
    tenant.answer(ParkingState.REFUSED, ParkingReason.MANAGED)
    eventually(patient.is_in("be-0", "refused"))
    eventually(lambda: ask_for_room(hp, 3000 * MIB) is CreditAnswer.NO)
    assert not keeps_room(patient, hp)
