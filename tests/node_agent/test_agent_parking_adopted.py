"""The next agent finishes what the one before it began: tenants that are away come back."""

import os
import time

import pytest

from orion.hook import join
from orion.hook.join import CreditAnswer
from orion.hook.layout import GrantPage, ParkingReason, ParkingState, RecordPage
from tests.node_agent.conftest import GPU, eventually
from tests.node_agent.fake_card import MIB, Tenant, ask_for_credit, ask_for_room, wait_for_room
from tests.node_agent.parking_cards import GIB, QUICK, Cards

PATH = [ParkingState.LEAVING, ParkingState.PARKED, ParkingState.RETURNING, ParkingState.RUNNING]


@pytest.mark.parametrize("killed_before", PATH)
def test_the_next_agent_finishes_what_a_killed_one_began(cards: Cards, killed_before: ParkingState) -> None:
    hp, tenant = cards.hp(4096), cards.be("be-0", 4096)
    tenant.stops_before = killed_before
    tenant.obey()
    ask_for_room(hp, 1024 * MIB)
    eventually(lambda: tenant.park == 1)
    if killed_before in (ParkingState.RETURNING, ParkingState.RUNNING):
        tenant.reaches(ParkingState.PARKED)
        assert cards.hold(hp, 0)
        eventually(lambda: tenant.park == 2)
    if killed_before is not ParkingState.LEAVING:
        tenant.reaches(PATH[PATH.index(killed_before) - 1])
    tenant.stops_before = None
    cards.restart()
    assert tenant.park % 2 == (1 if killed_before is not ParkingState.RUNNING else 0) or cards.card.held.get(hp) == 0
    assert cards.hold(hp, 0)
    tenant.reaches(ParkingState.RUNNING)
    eventually(lambda: tenant.park % 2 == 0 and tenant.state is ParkingState.RUNNING)
    assert cards.conditions("be-0") == {}


def test_a_client_that_stays_away_is_let_back_by_an_agent_that_has_lost_its_state(cards: Cards) -> None:
    hp, tenant = cards.hp(4096), cards.be("be-0", 4096).obey()
    assert wait_for_room(hp, 1024 * MIB) is CreditAnswer.YES
    assert cards.hold(hp, 7000)
    state = cards.agent.root / "state.json"
    cards.agent.kill()
    tenant.rest()
    state.write_text(state.read_text().replace('"park": 1', '"park": 0'))  # as if the last write had failed
    cards.agent.start(*QUICK)
    for client in cards.clients:
        client.return_to_agent()
    assert tenant.park == 1
    tenant.obey()
    assert cards.hold(hp, 0)
    tenant.reaches(ParkingState.RUNNING)


def test_a_client_that_joins_as_a_new_one_while_it_is_away_comes_back_when_there_is_room(cards: Cards) -> None:
    hp, tenant = cards.hp(7000), cards.be("be-0", 0)
    tenant.says(4096)  # what it will take when it comes back
    tenant.answer(ParkingState.PARKED)
    eventually(lambda: tenant.park == 1)
    assert cards.hold(hp, 0)
    tenant.obey().reaches(ParkingState.RUNNING)


@pytest.mark.parametrize("says", ["with its HELLO", "in its record"])
def test_a_new_client_that_is_away_is_asked_to_stay_away_at_once(cards: Cards, says: str) -> None:
    cards.restart("--parking-answer-seconds", "3600")
    hp = cards.hp(7000)
    with cards.administrator() as administrator:
        administrator.set_grant(GPU, "be-0", memory_parks=True)
    flags = join.HELLO_IS_AWAY if says == "with its HELLO" else 0
    away = Tenant.on(cards.card, cards.agent.slot("be-0"), 0, flags=flags)
    cards.clients.append(away)
    away.says(4096)  # what it will take when it comes back
    if says == "with its HELLO":
        assert away.park == 1, "it reads that before anything else"
    else:
        away.answer(ParkingState.PARKED)
    eventually(lambda: away.park == 1)
    away.obey()
    away.reaches(ParkingState.PARKED)
    assert cards.hold(hp, 0)
    away.reaches(ParkingState.RUNNING)


def test_the_next_agent_knows_what_left_of_a_tenant_of_which_a_part_stayed(cards: Cards) -> None:
    leaves = cards.be("be-0", 3000)
    stays = cards.joins(leaves, 2000)
    eventually(lambda: sum(client.memory_bytes for client in cards.slot("be-0").clients) == 5000 * MIB)
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
    eventually(lambda: leaves.park == 1)
    leaves.answer(ParkingState.PARKED)
    stays.answer(ParkingState.REFUSED, ParkingReason.BUSY)

    def is_away_with_what_left() -> bool:
        found = cards.parking("be-0")
        return (found.state, found.bytes) == ("parked", 3000 * MIB)

    eventually(is_away_with_what_left)
    cards.restart()
    eventually(is_away_with_what_left)


def test_a_limit_that_was_lowered_takes_no_room_from_who_is_away(cards: Cards) -> None:
    tenant, held = cards.be("be-0", 5000, limit=6 * GIB), 5100 * MIB
    cards.card.lists(os.getpid(), 5100)  # with the driver's own
    eventually(lambda: cards.slot("be-0").clients[0].memory_bytes == held, "the agent has asked the driver")
    with cards.administrator() as administrator:
        administrator.set_grant(GPU, "be-0", memory_parks=True, memory_limit_bytes=GIB)
        administrator.park_slot(GPU, "be-0", away=True)
    eventually(lambda: tenant.park == 1)
    cards.card.lists(os.getpid(), 0)
    tenant.answer(ParkingState.PARKED)
    eventually(cards.is_in("be-0", "parked"))
    assert cards.parking("be-0").bytes == held
    cards.restart()
    eventually(cards.is_in("be-0", "parked"))
    assert cards.parking("be-0").bytes == held


def test_the_next_agent_gives_no_credit_before_it_knows_what_returned_clients_hold(cards: Cards) -> None:
    one = cards.be("be-0", 300, limit=GIB)
    other = Tenant.on(cards.card, one.directory, 0)
    cards.clients.append(other)
    cards.card.lists(os.getpid(), 420)  # of the process of both: 120 MiB more than the first one counts
    cards.card.silence.touch()
    cards.restart()
    began = time.monotonic()
    for client in (one, other):
        client.record.set(RecordPage, "credit_epoch", client.grant.get(GrantPage, "credit_epoch"))
    first = ask_for_credit(other, 600 * MIB)
    assert first is CreditAnswer.LATER or time.monotonic() - began > 3, "the agent does not wait longer for the driver"
    cards.card.silence.unlink()
    eventually(lambda: ask_for_credit(other, 600 * MIB) is CreditAnswer.NO)
    both = [other.grant.memory[GrantPage.credit_mib.offset + 4 * each.key[0] :][:4] for each in (one, other)]
    assert sum(int.from_bytes(each, "little") for each in both) <= 1024 - 120 - 420


def test_hp_gets_no_room_of_one_that_comes_back_before_the_next_agent_knows_it(cards: Cards) -> None:
    hp, tenant = cards.hp(4096), cards.be("be-0", 4096)
    tenant.stops_before = ParkingState.RUNNING
    tenant.obey()
    assert ask_for_room(hp, 1024 * MIB) is CreditAnswer.LATER
    tenant.reaches(ParkingState.PARKED)
    assert cards.hold(hp, 0)
    tenant.reaches(ParkingState.RETURNING)
    cards.agent.kill()
    tenant.rest()
    cards.agent.start(*QUICK)
    hp.return_to_agent()

    def has_to_wait() -> bool:
        assert hp.grant.get(GrantPage, "returning_mib") > 0, "hp asks first"
        return ask_for_room(hp, 5 * GIB) is CreditAnswer.LATER

    assert all(has_to_wait() for _ in range(20)), "the tenant may be coming back, and the agent has not heard from it"
    cards.card.silence.touch()  # so the agent does not know at once what the tenant has taken
    tenant.return_to_agent()
    eventually(lambda: not has_to_wait() or cards.parking("be-0").state == "returning")
    assert has_to_wait()
    cards.card.silence.unlink()
    tenant.stops_before = None
    tenant.obey().reaches(ParkingState.RUNNING)
    eventually(lambda: ask_for_room(hp, GIB) is CreditAnswer.YES)
    eventually(lambda: hp.grant.get(GrantPage, "returning_mib") == 0)


def test_a_tenant_that_came_back_long_ago_does_not_keep_hp_waiting_for_the_next_agent(cards: Cards) -> None:
    hp, tenant = cards.hp(4096), cards.be("be-0", 4096).obey()
    assert wait_for_room(hp, 1024 * MIB) is CreditAnswer.YES
    assert cards.hold(hp, 0)
    tenant.reaches(ParkingState.RUNNING)
    eventually(cards.is_in("be-0", ""))
    cards.agent.kill()
    tenant.rest()
    cards.agent.start(*QUICK)
    hp.return_to_agent()
    assert hp.grant.get(GrantPage, "returning_mib") == 0
    assert wait_for_room(hp, GIB) is CreditAnswer.YES, "although the tenant has not returned to the agent"
    tenant.return_to_agent()
