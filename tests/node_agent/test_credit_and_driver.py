"""What the driver holds for the processes of a slot, as it says, counts against the slot's limit."""

import os
import time

import pytest

from orion.hook.join import CreditAnswer
from orion.hook.layout import ParkingState
from orion.node_agent.clients.client import proven_mib
from orion.node_agent.pages.parking_words import ParkingAnswer
from tests.node_agent.credit_slots import LIMIT, MIB, Record, Slots, is_in, says


def test_what_the_driver_holds_for_a_process_is_part_of_the_slots_sum() -> None:
    slots = Slots()
    alone = slots.join(100)
    says(slots, 130)
    assert slots.credit_of(alone) == LIMIT - 30
    assert slots.used() == 130
    assert slots.credit.asked(alone, LIMIT - 29) is CreditAnswer.NO
    assert slots.credit.asked(alone, LIMIT - 30) is CreditAnswer.YES


def test_a_client_that_makes_its_context_is_charged_what_others_need_for_theirs() -> None:
    slots = Slots()
    slots.join(100)
    says(slots, 130)
    new = slots.join(0)
    assert slots.used() == 100 + 30 + 30
    new.joined_ns = time.monotonic_ns()
    says(slots, 0)
    assert new.uncounted_mib == 30
    new.joined_ns = 0
    says(slots, 0)
    assert new.uncounted_mib == 0


def test_the_first_client_gets_credit_when_the_driver_has_said_what_its_context_takes() -> None:
    slots = Slots(is_new=True)
    first = slots.join(0, joined_ns=time.monotonic_ns())
    says(slots, 0)  # it has no context yet
    assert slots.credit_of(first) == LIMIT  # it needs no agent
    slots.credit.asks()
    assert slots.credit.asked(first, LIMIT) is CreditAnswer.LATER  # it has one now
    slots.credit.answered({os.getpid(): 0})  # to the question from before
    assert slots.credit.asked(first, LIMIT) is CreditAnswer.LATER
    says(slots, 100)
    assert slots.credit.asked(first, LIMIT) is CreditAnswer.NO
    assert slots.credit.asked(first, LIMIT - 100) is CreditAnswer.YES
    assert slots.credit_of(first) == LIMIT - 100
    assert slots.used() == 100


def test_later_clients_are_charged_at_once_what_the_first_ones_context_takes() -> None:
    slots = Slots(is_new=True)
    first = slots.join(0, joined_ns=time.monotonic_ns())
    slots.credit.asked(first, 1)
    says(slots, 100)
    slots.clients.clear()
    later = slots.join(0, joined_ns=time.monotonic_ns())
    assert slots.credit_of(later) == LIMIT - 100


def test_a_client_that_makes_its_context_while_the_first_one_waits_is_charged_as_much() -> None:
    slots = Slots(is_new=True)
    first, next_one = (slots.join(0, joined_ns=time.monotonic_ns(), process_id=each) for each in (1, 2))
    slots.credit.asked(first, 1)
    slots.credit.asks()
    slots.credit.answered({1: 100 * MIB, 2: 0})
    assert next_one.uncounted_mib == 100
    assert slots.credit.asked(next_one, LIMIT - 199) is not CreditAnswer.YES


def test_a_process_that_the_driver_does_not_list_teaches_nothing_of_contexts() -> None:
    slots = Slots(is_new=True)
    first, liar = (slots.join(0, joined_ns=time.monotonic_ns(), process_id=each) for each in (1, 2))
    for client in (first, liar):
        slots.credit.asked(client, 1)
    slots.credit.asks()
    slots.credit.answered({1: 100 * MIB})
    slots.clients.clear()
    assert slots.join(0).uncounted_mib == 100


@pytest.mark.parametrize("listed", [{}, None])
def test_where_the_driver_lists_no_process_or_does_not_say_the_first_client_gets_the_whole_limit(
    listed: dict[int, int | None] | None,
) -> None:
    slots = Slots(is_new=True)
    first = slots.join(0, joined_ns=time.monotonic_ns())
    assert slots.credit.asked(first, LIMIT) is CreditAnswer.LATER
    slots.credit.asks()
    slots.credit.answered(listed)
    assert slots.credit.asked(first, LIMIT) is CreditAnswer.YES


def test_a_first_client_does_not_wait_for_a_driver_that_does_not_answer() -> None:
    slots = Slots(is_new=True)
    first = slots.join(0, joined_ns=time.monotonic_ns())
    assert slots.credit.asked(first, LIMIT) is CreditAnswer.LATER
    first.wished_ns -= 1_000_000_000
    assert slots.credit.asked(first, LIMIT) is CreditAnswer.YES


@pytest.mark.parametrize("later", [100, 101, 115])
def test_what_the_driver_rounds_up_or_listed_once_is_no_context(later: int) -> None:
    slots = Slots()
    slots.join(100)
    says(slots, 130)
    for _ in range(2):
        says(slots, later)
    assert slots.join(0).uncounted_mib == 0


def test_a_client_waits_for_what_its_context_may_take_until_the_context_is_made() -> None:
    slots = Slots()
    slots.join(0)
    says(slots, 100)
    slots.clients.clear()
    new = slots.join(0)
    new.joined_ns = time.monotonic_ns()
    assert slots.credit.asked(new, LIMIT + 1) is CreditAnswer.NO
    assert slots.credit.asked(new, LIMIT - 50) is CreditAnswer.LATER
    for _ in range(2):
        says(slots, 40)
    assert (new.uncounted_mib, slots.credit.asked(new, LIMIT - 50)) == (40, CreditAnswer.YES)
    assert slots.credit.asked(new, LIMIT - 39) is CreditAnswer.NO


def test_a_process_that_hides_what_it_holds_keeps_no_later_one_from_allocating() -> None:
    slots = Slots()
    slots.join(1)
    says(slots, 40_000)
    assert slots.join(0).uncounted_mib == 1024


def test_a_client_that_says_too_little_lowers_the_credit_of_its_slot() -> None:
    slots = Slots()
    liar, other = slots.join(0), slots.join(100)
    slots.give(liar, 0, 0)
    slots.give(other, 0, 100)
    says(slots, 300)  # the liar holds 300, the other one 200 more than it says
    assert slots.used() == 100 + 300 + 200
    assert slots.credit.asked(other, 101) is CreditAnswer.NO


def test_a_driver_that_does_not_answer_changes_nothing() -> None:
    slots = Slots()
    client = slots.join(100)
    says(slots, 130)
    slots.credit.answered(None)
    slots.credit.look()
    assert slots.credit_of(client) == LIMIT - 30


@pytest.mark.parametrize("nothing", [{}, {os.getpid(): 0}])
def test_what_the_driver_holds_for_a_process_is_charged_while_it_is_parked_and_when_it_is_back(
    nothing: dict[int, int | None],
) -> None:
    slots = Slots()
    parked = slots.join(100)
    says(slots, 130)

    def is_charged() -> bool:
        return (parked.uncounted_mib, slots.used(), slots.credit_of(parked)) == (30, 130, LIMIT - 30)

    for state in (ParkingState.LEAVING, ParkingState.PARKED, ParkingState.PARKED, ParkingState.RETURNING):
        is_in(parked, state)
        slots.credit.asks()
        slots.credit.answered(nothing)
        assert is_charged()
    slots.credit.asks()
    is_in(parked, ParkingState.RUNNING)
    slots.credit.answered(nothing)  # to the question from before
    assert is_charged()
    assert slots.credit.asked(parked, LIMIT - 29) is CreditAnswer.NO, "at once: what it holds is known"
    says(slots, 130)
    assert is_charged()
    assert slots.join(0).uncounted_mib == 30


def test_what_the_driver_held_for_a_parked_process_is_known_to_the_next_agent() -> None:
    slots = Slots()
    record = Record(100)
    record.parking = ParkingAnswer.of(ParkingState.PARKED)
    back = slots.join(returned=True, left_mib=130, record=record)
    assert back.uncounted_mib == 30


def test_a_process_that_one_answer_lacks_is_charged_as_before() -> None:
    slots = Slots()
    client = slots.join(100)
    for _ in range(2):
        says(slots, 130)
        slots.credit.asks()
        slots.credit.answered({})
        assert (client.uncounted_mib, slots.used(), slots.credit_of(client)) == (30, 130, LIMIT - 30)


def test_what_was_held_before_the_limit_was_lowered_counts_until_the_driver_has_said_what_is_held_since() -> None:
    slots = Slots()
    client = slots.join(100)
    says(slots, 110)
    slots.give(client, LIMIT, 400)  # it grows after the driver's answer
    slots.credit.asks()  # and the driver is asked again, but has not answered yet
    for limit in (300, 200):
        slots.credit.changes(slots.slot, limit * MIB)
        slots.slot.grant.memory_limit_bytes = limit * MIB
    client.record.held = [401]  # beyond its limit: nobody believes this one
    assert proven_mib(client) == 400 + 10
    slots.credit.answered({os.getpid(): 110 * MIB})
    assert proven_mib(client) == 400 + 10
    says(slots, 390)
    assert proven_mib(client) == 390


def test_what_the_driver_holds_for_a_client_that_comes_back_to_the_next_agent_is_given_to_nobody() -> None:
    slots = Slots()
    back, new = slots.come_back(300), slots.join(0)
    slots.credit.look()
    assert slots.credit.asked(new, LIMIT - 300) is slots.credit.asked(back, LIMIT) is CreditAnswer.LATER
    slots.credit.asks()
    slots.credit.answered({os.getppid(): 330 * MIB})
    assert slots.credit.asked(new, LIMIT - 300) is CreditAnswer.NO
    assert slots.credit.asked(new, LIMIT - 330) is CreditAnswer.YES
    assert slots.credit_of(back) + slots.credit_of(new) <= LIMIT - 30


def test_a_client_that_comes_back_alone_gets_no_credit_for_what_the_driver_holds_for_it() -> None:
    slots = Slots()
    back = slots.come_back(300)
    slots.credit.look()
    assert slots.credit_of(back) == 300
    slots.credit.asks()
    slots.credit.answered({os.getppid(): 330 * MIB})
    assert slots.credit_of(back) == LIMIT - 30


def test_the_answer_to_a_question_from_before_its_return_says_nothing_of_a_client() -> None:
    slots = Slots()
    slots.credit.asks()
    slots.come_back(300)
    new = slots.join(0)
    slots.credit.answered({})
    assert slots.credit.asked(new, 100) is CreditAnswer.LATER


@pytest.mark.parametrize("unknown", [None, {os.getppid(): None}, {}])
def test_an_answer_that_does_not_say_what_a_client_that_comes_back_holds_gives_no_credit(
    unknown: dict[int, int | None] | None,
) -> None:
    slots = Slots()
    back, new = slots.come_back(300), slots.join(0)
    slots.credit.asks()
    slots.credit.answered(unknown)
    slots.credit.look()
    assert slots.credit.asked(new, LIMIT - 300) is slots.credit.asked(back, LIMIT) is CreditAnswer.LATER
    slots.credit.asks()
    slots.credit.answered({os.getppid(): 330 * MIB})
    assert slots.credit.asked(new, LIMIT - 300) is CreditAnswer.NO
    assert slots.credit.asked(new, LIMIT - 330) is CreditAnswer.YES


def test_a_client_that_comes_back_without_a_context_is_settled_by_the_second_answer() -> None:
    slots = Slots()
    back = slots.come_back(0)
    for awaits in (True, False):
        slots.credit.asks()
        slots.credit.answered({})
        assert back.awaits_driver == awaits


def test_a_driver_that_does_not_say_or_answer_keeps_no_credit_back_for_as_long_as_an_allocation_waits() -> None:
    slots = Slots()
    back, new = slots.come_back(300), slots.join(0)
    slots.credit.asks()
    slots.credit.answered(None)
    back.joined_ns = time.monotonic_ns() - 1_600_000_000
    slots.credit.look()
    assert slots.credit.asked(new, 200) is CreditAnswer.YES


@pytest.mark.parametrize(("before", "after"), [(300, 200), (LIMIT, LIMIT), (200, 300), (LIMIT, 0)])
def test_what_is_beyond_the_limit_or_does_not_go_beyond_it_by_the_change_is_not_believed(
    before: int, after: int
) -> None:
    slots = Slots()
    slots.slot.grant.memory_limit_bytes = before * MIB
    client = slots.join(400)
    slots.credit.changes(slots.slot, after * MIB)
    assert proven_mib(client) == 0
