"""The credits of a slot add up to no more than its limit, whatever clients do between two looks of the agent."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion.hook.join import CreditAnswer
from orion.node_agent.processes.liveness import start_time
from orion.node_agent.state.state_file import RememberedClient
from tests.node_agent.credit_slots import LIMIT, MIB, Slots


def test_a_client_alone_has_the_whole_limit_and_the_next_one_gets_what_it_asks_for() -> None:
    slots = Slots()
    one = slots.join(0)
    assert slots.credit_of(one) == LIMIT
    two = slots.join(0)
    assert (slots.credit_of(one), slots.credit_of(two)) == (LIMIT, 0)
    assert slots.credit.asked(two, 100) is CreditAnswer.YES
    assert slots.credit_of(two) >= 100
    assert slots.credit_of(one) + slots.credit_of(two) <= LIMIT
    assert slots.credit.asked(two, LIMIT + 1) is CreditAnswer.NO


@pytest.mark.parametrize("look", range(1, 9))
def test_what_a_client_spends_between_two_looks_is_not_given_away(look: int) -> None:
    slots = Slots()
    one, two = slots.join(0), slots.join(0)
    slots.give(one, 400, *[100] * look, 400)  # it spends all its credit after that many looks
    slots.give(two, 112, 112)
    answer = slots.credit.asked(two, 130)
    assert max(slots.credit_of(one), 400 if answer is not CreditAnswer.YES else 0) + slots.credit_of(two) <= LIMIT
    assert slots.credit_of(one) <= 400


def test_a_wish_that_cannot_be_fulfilled_takes_nothing_from_others() -> None:
    slots = Slots()
    one, two = slots.join(0), slots.join(0)
    slots.give(one, 400, 300)
    slots.give(two, 112, 112)
    assert slots.credit.asked(two, 300) is CreditAnswer.NO
    assert (slots.credit_of(one), slots.credit_of(two)) == (400, 112)


@pytest.mark.parametrize("held", [2**31, 2**44, 2**64])
def test_a_client_that_says_nonsense_harms_only_its_slot(held: int) -> None:
    slots = Slots()
    liar, other = slots.join(0), slots.join(0)
    liar.record.held = [held]
    slots.credit.look()
    assert slots.credit.asked(other, 1) is CreditAnswer.NO
    slots.credit.left(liar)


def test_a_process_that_leaves_and_lives_keeps_what_it_holds_until_it_has_joined_again() -> None:
    slots = Slots()
    one, two = slots.join(0), slots.join(0)
    one.record.held = [300]
    del slots.clients[0]
    slots.credit.left(one)
    assert slots.credit.asked(two, 300) is CreditAnswer.NO
    again = slots.join(0)
    assert slots.credit.asked(two, 300) is CreditAnswer.NO
    again.record.held, again.record.credit_epoch = [200], slots.slot.page.epoch
    assert slots.credit.asked(two, 300) is CreditAnswer.YES


def test_a_process_that_leaves_again_and_again_is_remembered_once_and_only_where_there_is_a_limit() -> None:
    slots = Slots()
    for held in (100, 200, 300):
        client = slots.join(held)
        slots.clients.clear()
        slots.credit.left(client)
    assert slots.used() == 300
    slots.slot.grant.memory_limit_bytes = 0
    slots.credit.forget(slots.slot)
    client = slots.join(300)
    slots.clients.clear()
    slots.credit.left(client)
    assert not slots.credit.has_clients


def remembered(started: int | None) -> RememberedClient:
    """Return a client of the previous agent whose process id is that of this process's parent, which lives."""
    return RememberedClient(
        slot="be-0",
        place=7,
        generation=1,
        process_id=os.getppid(),
        started=started,
        command="",
        busy=(1, 1),
        record=(1, 2),
    )


@pytest.mark.parametrize("says_start", [True, False])
def test_what_a_client_of_the_previous_agent_may_hold_is_kept_while_its_process_lives(says_start: bool) -> None:
    slots = Slots()  # an earlier agent did not save when the process started
    before = remembered(start_time(os.getppid()) if says_start else None)
    slots.awaited[7] = before
    alone = slots.join(100)
    assert slots.credit_of(alone) == 100
    assert slots.credit.asked(alone, 200) is CreditAnswer.LATER
    del slots.awaited[7]
    slots.credit.gave_up(before)
    slots.credit.look()
    assert slots.used() == LIMIT
    assert slots.credit.asked(alone, 200) is CreditAnswer.NO


def test_a_process_that_has_got_the_id_of_a_client_of_the_previous_agent_is_charged_nothing() -> None:
    slots = Slots()
    before = remembered((start_time(os.getppid()) or 0) - 1)
    slots.awaited[7] = before
    alone = slots.join(100)
    assert slots.credit_of(alone) == LIMIT
    del slots.awaited[7]
    slots.credit.gave_up(before)
    slots.credit.look()
    assert (slots.used(), slots.credit_of(alone)) == (100, LIMIT)


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(("spend", "free", "ask", "look", "limit")), st.integers(0, 3), st.integers(1, 600))
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_credits_and_what_is_held_never_exceed_the_limit(steps: list[Step]) -> None:
    slots = Slots()
    clients = [slots.join(0) for _ in range(4)]
    highest = LIMIT
    for what, who, mib in steps:
        client = clients[who]
        held = client.record.held[0]
        if what == "spend" and held + mib <= min(slots.credit_of(client), slots.slot.grant.memory_limit_bytes // MIB):
            client.record.held = [held + mib]
        elif what == "free":
            client.record.held = [max(0, held - mib)]
        elif what == "ask":
            slots.credit.asked(client, held + mib)
        elif what == "look":
            slots.credit.look()
        elif what == "limit":
            slots.slot.grant.memory_limit_bytes = mib * MIB
            slots.credit.look_at(slots.slot)
            highest = max(mib, sum(each.record.held[0] for each in clients))
        assert sum(max(slots.credit_of(each), each.record.held[0]) for each in clients) <= highest
