"""Tenants that refuse to leave, do not answer, or answer what is not so: they harm nobody else for long."""

import os

import pytest

from orion.hook import layout
from orion.hook.join import CreditAnswer
from orion.hook.layout import ParkingReason, ParkingState
from tests.node_agent.conftest import GPU, eventually
from tests.node_agent.fake_card import MIB, ask_for_room, wait_for_room
from tests.node_agent.parking_cards import GIB, Cards


def test_who_refuses_is_passed_over_with_its_reason_and_asked_again_later(cards: Cards) -> None:
    refuses, leaves = cards.be("be-0", 3000), cards.be("be-1", 4000).obey()
    hp = cards.hp()
    assert ask_for_room(hp, 3000 * MIB) is CreditAnswer.LATER
    eventually(lambda: refuses.park == 1)
    refuses.answer(ParkingState.REFUSED, ParkingReason.MANAGED, result=801)
    assert wait_for_room(hp, 3000 * MIB) is CreditAnswer.YES
    leaves.reaches(ParkingState.PARKED)
    assert refuses.park == 2
    assert "managed memory" in cards.conditions("be-0")["ParkRefused"]
    assert "CUDA error 801" in cards.conditions("be-0")["ParkRefused"]
    assert cards.parking("be-0").state == "refused"
    eventually(lambda: not cards.conditions("be-0"), "the refusal is forgotten when the tenant may be asked again")
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
    eventually(lambda: refuses.park == 3)


def test_hp_waits_for_one_that_has_refused_for_a_reason_that_passes(cards: Cards) -> None:
    busy, hp = cards.be("be-0", 6000), cards.hp()
    assert ask_for_room(hp, 3000 * MIB) is CreditAnswer.LATER
    eventually(lambda: busy.park == 1)
    busy.answer(ParkingState.REFUSED, ParkingReason.BUSY)
    eventually(lambda: busy.park == 2)
    busy.answer(ParkingState.RUNNING)
    busy.obey()
    assert wait_for_room(hp, 3000 * MIB) is CreditAnswer.YES
    assert busy.state is ParkingState.PARKED


def test_who_has_refused_and_may_leave_no_more_has_no_problem(cards: Cards) -> None:
    refuses, hp = cards.be("be-0", 6000), cards.hp()
    assert ask_for_room(hp, 3000 * MIB) is CreditAnswer.LATER
    eventually(lambda: refuses.park == 1)
    refuses.answer(ParkingState.REFUSED, ParkingReason.MANAGED)
    eventually(lambda: "ParkRefused" in cards.conditions("be-0"))
    with cards.administrator() as administrator:
        administrator.set_grant(GPU, "be-0", memory_parks=False)
    eventually(lambda: not cards.conditions("be-0"))
    assert cards.parking("be-0").state == ""


def test_who_has_lost_its_memory_and_may_leave_no_more_is_still_shown_as_lost(cards: Cards) -> None:
    tenant, hp = cards.be("be-0", 1000), cards.hp()
    tenant.answer(ParkingState.LOST)
    eventually(cards.is_in("be-0", "lost"))
    with cards.administrator() as administrator:
        administrator.set_grant(GPU, "be-0", memory_parks=False)
    assert ask_for_room(hp, 7500 * MIB) is CreditAnswer.LATER, "the agent still looks at it"
    assert wait_for_room(hp, 7500 * MIB) is CreditAnswer.NO
    assert cards.parking("be-0").state == "lost"
    assert "ParkLost" in cards.conditions("be-0")


def test_who_does_not_answer_is_passed_over(cards: Cards) -> None:
    silent, leaves = cards.be("be-0", 3000), cards.be("be-1", 4000).obey()
    hp = cards.hp()
    assert ask_for_room(hp, 3000 * MIB) is CreditAnswer.LATER
    eventually(lambda: "ParkRefused" in cards.conditions("be-0"))
    assert "did not answer" in cards.conditions("be-0")["ParkRefused"]
    assert wait_for_room(hp, 3000 * MIB) is CreditAnswer.YES
    assert (leaves.state, silent.park) == (ParkingState.PARKED, 2)


def test_who_does_not_answer_is_not_asked_again_before_it_shows_life(cards: Cards) -> None:
    silent, refuses = cards.be("be-0", 3000), cards.be("be-1", 4000)
    hp = cards.hp()
    assert ask_for_room(hp, 3000 * MIB) is CreditAnswer.LATER
    eventually(lambda: cards.parking("be-0").state == "refused")
    eventually(lambda: ask_for_room(hp, 3000 * MIB) is CreditAnswer.LATER and refuses.park == 1)
    refuses.answer(ParkingState.REFUSED, ParkingReason.BUSY)
    eventually(lambda: "ParkRefused" in cards.conditions("be-1"))
    eventually(lambda: not cards.conditions("be-1"), "who has refused may be asked again")
    assert "goes on" in cards.conditions("be-0")["ParkRefused"]
    assert wait_for_room(hp, 5500 * MIB) is CreditAnswer.NO, "hp does not wait for it"
    assert silent.park == 2
    silent.shows_life()
    eventually(lambda: ask_for_room(hp, 3000 * MIB) is CreditAnswer.LATER and silent.park == 3)


def test_who_does_not_come_back_is_not_called_again_before_it_shows_life(cards: Cards) -> None:
    tenant, hp = cards.be("be-0", 6000).obey(), cards.hp()
    assert wait_for_room(hp, 3000 * MIB) is CreditAnswer.YES
    tenant.reaches(ParkingState.PARKED)
    tenant.rest()
    assert cards.hold(hp, 0)
    eventually(lambda: tenant.park == 2)
    eventually(lambda: tenant.park == 3, "it does not answer, and stays away")
    refuses = cards.be("be-1", 1000)
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-1", away=True)
        eventually(lambda: refuses.park == 1)
        refuses.answer(ParkingState.REFUSED, ParkingReason.BUSY)
        eventually(lambda: "ParkRefused" in cards.conditions("be-1"))
        administrator.park_slot(GPU, "be-1", away=False)
    eventually(lambda: not cards.conditions("be-1"), "so much time has passed")
    assert tenant.park == 3
    tenant.shows_life()
    eventually(lambda: tenant.park == 4)


@pytest.mark.parametrize("reason", [ParkingReason.LOCK, ParkingReason.CHECKPOINT])
def test_a_driver_that_does_not_support_parking_a_program_is_not_taken_for_a_slow_call(
    cards: Cards, reason: ParkingReason
) -> None:
    profiled = cards.be("be-0", 3000)
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        eventually(lambda: profiled.park == 1)
        profiled.answer(ParkingState.REFUSED, reason, result=801)
        eventually(lambda: "such as a profiler (CUDA error 801)" in cards.conditions("be-0").get("ParkRefused", ""))


def test_who_says_that_it_has_left_and_has_not_is_found_out(cards: Cards) -> None:
    liar = cards.be("be-0", 3000)
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
    eventually(lambda: liar.park == 1)
    cards.card.lists(os.getpid(), 3000)
    liar.answer(ParkingState.PARKED)
    eventually(lambda: "ParkRefused" in cards.conditions("be-0"))
    assert "the driver lists memory" in cards.conditions("be-0")["ParkRefused"]
    assert liar.park == 2
    others = [cards.be(f"be-{number}", 10) for number in (1, 2)]  # each makes the agent look again
    assert "ParkRefused" in cards.conditions("be-0")
    assert (liar.park, [each.park for each in others]) == (2, [0, 0])


def test_who_says_that_its_memory_is_lost_and_was_not_asked_is_not_said_to_be_asked_again(cards: Cards) -> None:
    liar = cards.be("be-0", 3000)
    cards.card.lists(os.getpid(), 3000)
    liar.answer(ParkingState.LOST)

    def says(sentence: str) -> None:
        eventually(lambda: sentence in cards.conditions("be-0").get("ParkRefused", ""), sentence)

    says("it is asked to leave when others need the room")
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        says("it is asked again after 4 s")
        administrator.park_slot(GPU, "be-0", away=False)
    says("it is asked to leave when others need the room")


def test_who_cannot_come_back_is_reported_as_lost(cards: Cards) -> None:
    tenant = cards.be("be-0", 3000)
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        eventually(lambda: tenant.park == 1)
        for state in (ParkingState.LEAVING, ParkingState.PARKED):
            tenant.answer(state)
        eventually(cards.is_in("be-0", "parked"))
        administrator.park_slot(GPU, "be-0", away=False)
    eventually(lambda: tenant.park == 2)
    tenant.answer(ParkingState.LOST, ParkingReason.RESTORE, result=2)
    eventually(lambda: "ParkLost" in cards.conditions("be-0"))
    assert "restart it" in cards.conditions("be-0")["ParkLost"]
    eventually(cards.is_in("be-0", "lost"))


@pytest.mark.parametrize("word", [2**64 - 1, 0xFF, 0x0001_0000_0000_0002, 0xFFFF_FFFF_0000_0002, 0x0000_0001_FFFF_FF04])
def test_words_that_mean_nothing_harm_only_their_writer(cards: Cards, word: int) -> None:
    hp, hostile, leaves = cards.hp(3500), cards.be("be-0", 500), cards.be("be-1", 4000).obey()
    for name, value in (("parking", word), ("parking_since_ns", 2**64 - 1)):
        hostile.record.set(layout.RecordPage, name, value)
    assert wait_for_room(hp, 3500 * MIB) is CreditAnswer.YES
    leaves.reaches(ParkingState.PARKED)
    assert cards.hold(hp, 0)
    leaves.reaches(ParkingState.RUNNING)


def test_who_leaves_for_ever_and_says_that_it_holds_everything_delays_hp_only_for_a_while(cards: Cards) -> None:
    hp, hostile, leaves = cards.hp(3500), cards.be("be-0", 500, limit=GIB), cards.be("be-1", 4000).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
    eventually(lambda: hostile.park == 1)
    hostile.record.set(layout.RecordPage, "memory_bytes", 2**63)
    hostile.answer(ParkingState.LEAVING)
    assert wait_for_room(hp, 3500 * MIB) is CreditAnswer.YES
    leaves.reaches(ParkingState.PARKED)


def test_who_comes_back_for_ever_keeps_room_from_others_only_for_a_while(cards: Cards) -> None:
    hp, hostile = cards.hp(), cards.be("be-0", 500, limit=GIB).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        hostile.reaches(ParkingState.PARKED)
        hostile.rest()
        administrator.park_slot(GPU, "be-0", away=False)
    eventually(lambda: hostile.park == 2)
    hostile.record.set(layout.RecordPage, "memory_bytes", 2**63)
    hostile.answer(ParkingState.RETURNING)
    eventually(lambda: ask_for_room(hp, GIB) is CreditAnswer.YES)


def test_who_connects_twice_and_says_that_it_comes_back_keeps_no_room(cards: Cards) -> None:
    hp, hostile, other = cards.hp(), cards.be("be-0", 500, limit=GIB), cards.be("be-1", 4000)
    hostile.record.set(layout.RecordPage, "memory_bytes", 2**63)
    hostile.answer(ParkingState.RETURNING)
    with hostile.sock.dup():  # the first connection stays open
        hostile.return_to_agent()
        assert wait_for_room(hp, GIB) is CreditAnswer.YES
        assert cards.parking("be-0").state != "returning"
    assert other.park == 0


@pytest.mark.parametrize("when", ["before it leaves", "while it is away"])
def test_who_says_that_it_held_more_than_its_limit_takes_nobodys_turn(cards: Cards, when: str) -> None:
    hostile, other = cards.be("be-0", 500, limit=GIB).obey(), cards.be("be-1", 4000).obey()
    if when == "before it leaves":
        hostile.record.set(layout.RecordPage, "memory_bytes", 7000 * MIB)
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        hostile.reaches(ParkingState.PARKED)
        hostile.record.set(layout.RecordPage, "memory_bytes", 7000 * MIB)
        eventually(cards.is_in("be-0", "parked"))
        assert cards.parking("be-0").bytes <= GIB
        administrator.park_slot(GPU, "be-0", away=False)
    hostile.reaches(ParkingState.RUNNING)
    assert other.park == 0, "both fit"


def test_who_has_left_beside_one_that_refuses_comes_back_to_its_own_room(cards: Cards) -> None:
    leaves = cards.be("be-0", 3000).obey()
    refuses = cards.joins(leaves, 3000)
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        eventually(lambda: refuses.park == 1)
        refuses.answer(ParkingState.REFUSED, ParkingReason.BUSY)
        leaves.reaches(ParkingState.PARKED)
        eventually(cards.is_in("be-0", "parked"))
        administrator.park_slot(GPU, "be-0", away=False)
    leaves.reaches(ParkingState.RUNNING)
    assert cards.card.lost == 0
