"""What a slot is charged and owed between two checks."""

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from orion.hook import join
from orion.node_agent.sharing.account import Account
from orion.node_agent.sharing.accounts import Accounts
from orion.node_agent.sharing.demand import Demand
from orion.node_agent.sharing.turn_lengths import next_lengths
from orion.node_agent.sharing.turns import Turns
from tests.node_agent.one_gpu import GPU, agent_of_one_gpu

MS = 1_000_000


def test_turns_that_the_agent_gave_leave_no_large_debt() -> None:
    account = Account(wants=True)
    for now in range(0, 2_000, 50):
        account.turns_ns = 50 * MS
        account.charge(now * MS, (now + 50) * MS, 1.0, held_ns=50.0 * MS, ran_on_ns=0.0, lost_ns=0.0)
    assert account.debt_ns == 100 * MS


def test_work_that_runs_on_is_a_debt_of_two_seconds_at_most() -> None:
    account = Account(wants=True)
    for now, debt in ((0, 700), (1_000, 1_400), (2_000, 2_000), (3_000, 2_000)):
        account.charge(now * MS, (now + 1_000) * MS, 1.0, held_ns=0.0, ran_on_ns=700.0 * MS, lost_ns=0.0)
        assert account.debt_ns == debt * MS


def test_a_slot_that_wants_nothing_pays_its_debt_at_the_rate_of_its_share() -> None:
    accounts = Accounts()
    accounts.keep({"a": Demand(), "b": Demand()})
    for name, request in (("a", 0.1), ("b", 0.9)):
        accounts[name].request, accounts[name].clients, accounts[name].balance_ns = request, 1, -1_000.0 * MS
    accounts["b"].wants = True
    accounts.pay(2_000.0 * MS)
    assert [accounts[name].debt_ns for name in "ab"] == pytest.approx([800 * MS, 1_000 * MS])
    accounts["b"].wants = False
    accounts.pay(700.0 * MS)  # nobody else wants the GPU, so they would divide it
    assert [accounts[name].debt_ns for name in "ab"] == pytest.approx([730 * MS, 370 * MS])
    accounts.pay(7_300.0 * MS)
    assert [accounts[name].balance_ns for name in "ab"] == [0.0, 0.0]


def test_a_slot_with_a_debt_that_comes_back_has_the_gpu_at_once_if_nobody_else_wants_it() -> None:
    turns, now = Turns(), 1_000 * MS
    both = {name: Demand(launched=True, waiting=True, reported_ns=MS) for name in "ab"}
    for at in (now, now + 70 * MS):
        turns.look(at, 1.0, both)
    turns.accounts["a"].balance_ns = -2_000.0 * MS
    for later in range(140, 1_400, 70):
        turns.look(now + later * MS, 1.0, {"a": Demand(), "b": Demand()})
    assert not turns.competing
    assert turns.accounts["a"].debt_ns > 500 * MS
    now += 1_400 * MS
    assert turns.ask("a", now)
    assert turns.plans["a"].time(now, now + 70 * MS) > 0
    turns.look(now + 70 * MS, 1.0, both | {"b": Demand()})
    assert turns.accounts["a"].debt_ns == 0
    assert not turns.plans


async def test_where_be_takes_no_turns_nobody_waits_or_owes_and_turns_may_begin_again_at_once() -> None:
    both, now = {name: Demand(launched=True, waiting=True, reported_ns=MS) for name in "ab"}, 1_000 * MS
    with agent_of_one_gpu() as agent:
        served = agent.gpu(GPU)
        for _ in range(2):
            for _ in range(5):
                now += 40 * MS
                served.turns.look(now, 1.0, both)
                assert served.turns.competing
                assert served.turns.plans.keys() == both.keys()
            served.turns.hand_back("a", now + MS)
            served.turns.ask("a", now + 2 * MS)  # so that the next check finds fresh plans
            served.turns.accounts["a"].balance_ns = -1_000.0 * MS
            served.release_all()
            assert not served.turns.competing
            assert not served.turns.plans
            assert not served.turns.accounts.debtors
            assert not served.turns.hand_back("a", now + 3 * MS)
            assert not served.turns.ask("a", now + 4 * MS)


@pytest.mark.parametrize("part", [1.0, 0.25])
def test_a_slot_that_comes_back_with_a_debt_has_paid_until_then(part: float) -> None:
    turns, now = Turns(), 1_000 * MS
    limited = {"a": Demand(ceiling=0.5)}  # so it has a plan, and asks
    for at in (now, now + 100 * MS):
        turns.look(at, part, limited)
    turns.accounts["a"].balance_ns = -1_000.0 * MS
    assert turns.ask("a", now + 500 * MS)
    assert turns.accounts["a"].debt_ns == pytest.approx((1_000 - 400 * part) * MS)


def test_a_slot_alone_on_the_gpu_has_no_debt_for_long_pieces() -> None:
    turns, now = Turns(), 1_000 * MS
    alone = {"a": Demand(launched=True, piece_ns=50 * MS), "b": Demand()}
    turns.look(now, 1.0, alone)
    turns.accounts["a"].room_ns = 2_000.0 * MS  # is left of a competition
    for at in range(1, 20):
        turns.look(
            now + at * 150 * MS, 1.0, alone | {"a": Demand(launched=True, reported_ns=50 * MS, piece_ns=50 * MS)}
        )
        assert turns.accounts["a"].debt_ns == 0
        assert not turns.plans


@pytest.mark.parametrize("limited", [0.3, 0.7])
def test_work_from_before_slots_competed_is_no_debt(limited: float) -> None:
    """A slot with long pieces had the GPU alone, until a slot that has a limit asks for it."""
    turns, now = Turns(), 1_000 * MS
    alone = Demand(reported_ns=70 * MS, piece_ns=10 * MS, launched=True, waiting=True)
    asks = Demand(limit=limited, ceiling=limited)
    for _ in range(40):
        turns.look(now, 1.0, {"a": alone, "b": asks})
        now += 70 * MS
    assert not turns.competing
    turns.ask("b", now - 10 * MS)
    turns.look(now, 1.0, {"a": alone, "b": Demand(limit=limited, ceiling=limited, waiting=True)})
    assert turns.accounts["a"].debt_ns < 5 * MS


@pytest.mark.parametrize("before_ms", [0.1, 50])
def test_work_that_began_after_the_last_check_before_slots_competed_is_no_debt(before_ms: float) -> None:
    turns, now = Turns(), 1_000 * MS
    slots = {"a": Demand(piece_ns=int(before_ms * MS)), "b": Demand(limit=0.5, ceiling=0.5)}
    turns.look(now, 1.0, slots)
    turns.accounts["a"].room_ns = 2_000.0 * MS  # is left of a competition
    turns.ask("b", now + 100 * MS, {"a"})
    both = {name: each._replace(launched=True, waiting=True, piece_ns=50 * MS) for name, each in slots.items()}
    turns.look(now + 105 * MS, 1.0, both)
    turns.look(now + 110 * MS, 1.0, both | {"a": both["a"]._replace(reported_ns=50 * MS)})
    assert turns.accounts["a"].debt_ns < 5 * MS


def test_a_slot_whose_client_has_ended_wants_nothing_and_is_not_judged() -> None:
    turns, now = Turns(), 1_000 * MS
    working = {name: Demand(launched=True, waiting=True) for name in "ab"}
    turns.look(now, 1.0, working)
    turns.accounts["a"].balance_ns = -1_000.0 * MS
    for after in range(1, 20):
        turns.look(now + after * 25 * MS, 1.0, working | {"a": Demand(clients=0)})
        assert not turns.accounts["a"].wants
    assert turns.accounts["a"].progress.fruitless_ns == 0


async def test_the_agent_sees_who_works_when_a_slot_asks() -> None:
    with agent_of_one_gpu() as agent:
        served, asked = agent.gpu(GPU), list[Collection[str]]()
        turns: Any = SimpleNamespace(competing=False, ask=lambda name, now, working: asked.append(working))
        served.turns = turns
        for name, wants in (("be-0", True), ("be-1", True), ("be-2", False)):
            client: Any = SimpleNamespace(slot=served.shared_gpu.slot(name), record=SimpleNamespace(wants_gpu=wants))
            served.shared_gpu.clients[len(served.shared_gpu.clients)] = client
        served._wishes(served.shared_gpu.slot("be-0"), join.TurnWish.WANTED)
        served.shared_gpu.clients.clear()
        served.turns = Turns()
        assert asked == [{"be-1"}]


def test_a_slot_that_may_have_all_that_hp_leaves_still_has_turns_of_its_limit() -> None:
    turns, now = Turns(), 1_000 * MS
    for _ in range(40):  # hp leaves 0.4, which is all that the limit allows
        turns.look(now, 0.4, {"a": Demand(limit=1.0, ceiling=0.4, reported_ns=MS, launched=True, waiting=True)})
        now += 70 * MS
    assert turns.plans["a"].begun(now, now + 700 * MS) > 20, "hp may stop, so the turn ends in each cycle"


def test_handovers_that_take_all_time_leave_turns_of_no_length() -> None:
    accounts = Accounts()
    accounts.keep({"a": Demand(), "b": Demand()})
    for account in accounts.values():
        account.wants, account.handover_ns = True, 600_000.0
    lengths = next_lengths(accounts, {"a": 0.5, "b": 0.5}, {"a": 0.0, "b": 0.0}, 1_000_000, shortest_ns=1_000)
    assert all(length >= 0 for length in lengths.values())


@pytest.mark.parametrize(("piece_ms", "said_ms", "counted_ms"), [(4, 0, 0), (4, 2, 2), (4, 1_000, 25), (1, 2, 0)])
def test_long_pieces_that_fit_into_turns_are_charged_for_what_ran_on(
    piece_ms: int, said_ms: int, counted_ms: int
) -> None:
    """No more than the time that has passed, whatever clients say. Short pieces end too early as often as too late."""
    account = Account(usual_turn_ns=10.0 * MS)
    says = Demand(piece_ns=piece_ms * MS, reported_ns=10 * MS, ran_on_ns=said_ms * MS)
    assert account.beyond(10.0 * MS, 0.0, 10.0 * MS, says, 25.0 * MS) == (0.0, counted_ms * MS)


@pytest.mark.parametrize(
    ("piece_ms", "said_ms", "reported_ms", "through_ms", "after_ms"),
    [(1, 0, 12, 2, 0), (4, 1, 12, 1, 1), (4, 0, 1_000, 5, 0), (4, 0, 10, 0, 0), (30, 0, 12, 2, 0), (30, 0, 22, 5, 7)],
)
def test_what_is_reported_beyond_turns_is_of_hps_part_of_them_first(
    piece_ms: int, said_ms: int, reported_ms: int, through_ms: int, after_ms: int
) -> None:
    """No more than all of hp's part. Only a piece that is longer than turns may have run for longer."""
    account = Account(usual_turn_ns=10.0 * MS)
    says = Demand(piece_ns=piece_ms * MS, ran_on_ns=said_ms * MS)
    assert account.beyond(10.0 * MS, 5.0 * MS, reported_ms * MS, says, 25.0 * MS) == (through_ms * MS, after_ms * MS)


def test_a_report_of_hps_part_may_come_late() -> None:
    account, says = Account(usual_turn_ns=10.0 * MS), Demand(piece_ns=4 * MS)
    assert account.beyond(10.0 * MS, 5.0 * MS, 8.0 * MS, says, 25.0 * MS) == (0.0, 0.0)
    assert account.beyond(10.0 * MS, 0.0, 15.0 * MS, says, 25.0 * MS) == (3.0 * MS, 0.0)


def test_a_rounding_error_of_what_hp_waited_for_stops_no_check() -> None:
    """All that the second slot has had is what adding and subtracting left of hp's part of its turns."""
    accounts = Accounts()
    demands = {"a": Demand(reported_ns=30 * MS, piece_ns=3 * MS, ran_on_ns=MS), "b": Demand(reported_ns=MS)}
    accounts.keep(demands)
    for name, account in accounts.items():
        account.wants, account.piece_ns = True, demands[name].piece_ns
    accounts["a"].turns_ns = 20 * MS
    accounts["b"].closed_ns = 5e-10
    accounts.divide()
    accounts.charge(1_000 * MS, 0.8, demands, 25.0 * MS)
    assert accounts["a"].was_charged_ns > 16 * MS
