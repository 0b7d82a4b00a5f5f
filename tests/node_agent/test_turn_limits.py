"""Limits of slots on a modelled GPU: in each second, in long cycles, beside jobs and clients that lie."""

import pytest

from orion.node_agent.sharing.accounts import Accounts
from orion.node_agent.sharing.demand import Demand
from orion.node_agent.sharing.joint import Window
from orion.node_agent.sharing.turn_lengths import TurnLengths, next_lengths
from orion.node_agent.sharing.turns import Turns
from tests.node_agent.modelled_gpu import MS, Tenant, means, run, shares


def test_limits_hold_on_an_idle_gpu() -> None:
    assert means(run([Tenant(limit=0.5)], 6.0), of_all=False) == pytest.approx([0.5], abs=0.005)
    assert means(run([Tenant(limit=0.3), Tenant(limit=0.4)], 6.0), of_all=False) == pytest.approx([0.3, 0.4], abs=0.005)


@pytest.mark.parametrize("check_ns", [25 * MS, 69 * MS, 100 * MS])
@pytest.mark.parametrize("limits", [(0.3,), (0.5,), (0.3, 0.4)])
def test_a_limit_holds_in_each_second(limits: tuple[float, ...], check_ns: int) -> None:
    found = shares(run([Tenant(limit=limit) for limit in limits], 8.0, check_ns=check_ns), of_all=False)
    for windows, limit in zip(found, limits, strict=True):
        assert max(abs(each - limit) for each in windows) < 0.01, (limit, min(windows), max(windows))


@pytest.mark.parametrize("shortest_ms", [0.8, 20.0])
@pytest.mark.parametrize("limit", [0.001, 0.002, 0.005, 0.02])
def test_a_small_limit_stops_nobody(limit: float, shortest_ms: float) -> None:
    """It allows less in a cycle than the shortest turn, or less in a second."""
    lengths = TurnLengths.of(shortest_ms, None)
    for tenants in ([Tenant(limit=limit, handover_ns=0)], [Tenant(limit=limit, handover_ns=0), Tenant()]):
        windows = shares(run(tenants, 20.0, lengths=lengths), of_all=False)[0]
        assert 0.7 * limit < sum(windows) / len(windows) < 1.3 * limit
        assert max(windows) < limit + 0.005 + lengths.shortest_ns / 1e9  # one turn more


@pytest.mark.parametrize("limit", [0.001, 0.003, 0.03])
def test_a_neighbour_that_hands_back_and_asks_often_lifts_no_limit(limit: float) -> None:
    tenants = [Tenant(limit=limit, handover_ns=0), Tenant(), Tenant(burst_ns=MS, pause_ns=3 * MS)]
    windows = shares(run(tenants, 12.0), of_all=False)[0]
    assert sum(windows) / len(windows) < limit + 0.0005


def test_a_slot_in_debt_has_what_limits_leave_of_a_cycle() -> None:
    """Nobody else may have that time."""
    accounts, shares = Accounts(), {"in debt": 0.5, "limited": 0.5}
    accounts.keep(dict.fromkeys(shares, Demand()))
    accounts["limited"].ceiling = 0.1
    accounts["limited"].second.add(0, 1_000 * MS, 95.0 * MS)
    for account in accounts.values():
        account.expect(20 * MS, 4.0, 0.0)
    found = next_lengths(accounts, shares, {"in debt": -30.0 * MS, "limited": 20.0 * MS}, 20 * MS, MS)
    assert found == {"limited": 4 * MS, "in debt": 16 * MS}
    accounts["limited"].ceiling = 0.9
    found = next_lengths(accounts, shares, {"in debt": -30.0 * MS, "limited": 20.0 * MS}, 20 * MS, MS)
    assert found == {"limited": 20 * MS}


@pytest.mark.parametrize(("limit", "piece_ms"), [(0.3, 100), (0.3, 200), (0.5, 150)])
def test_a_long_piece_waits_until_the_limit_has_room_for_it(limit: float, piece_ms: int) -> None:
    windows = shares(run([Tenant(limit=limit, piece_ns=piece_ms * MS)], 14.0), of_all=False)[0]
    assert max(windows) < limit + 0.08  # it would be up to 0.17 more if debts alone held the limit
    assert sum(windows) / len(windows) > 0.7 * limit


def test_a_lie_does_not_lift_others_over_their_limits() -> None:
    """A slot reports any number for work of 3 ms. What it reports is credited to the others, but their limits hold."""
    turns, now, had = Turns(), 1_000 * MS, dict.fromkeys("abc", 0)
    for step in range(200):
        demands = {
            name: Demand(limit=limit, reported_ns=reported, piece_ns=piece, launched=True, waiting=True, ceiling=limit)
            for name, limit, reported, piece in (("a", 1.0, 1 << 63, 3 * MS), ("b", 0.3, MS, 0), ("c", 0.3, MS, 0))
        }
        turns.look(now, 1.0, demands)
        assert all(account.was_charged_ns >= 0 for account in turns.accounts.values())
        for name, plan in turns.plans.items():
            had[name] += plan.time(now, now + 25 * MS) if step >= 40 else 0
        now += 25 * MS
    for name in "bc":
        assert had[name] < 0.34 * 160 * 25 * MS  # 0.3, what corrections need, and handovers


@pytest.mark.parametrize("part", [0.0, 1.0])
def test_what_limited_slots_used_is_forgotten_after_a_second(part: float) -> None:
    turns, now = Turns(), 1_000 * MS
    demand = Demand(limit=0.3, ceiling=0.3, launched=True, waiting=True, reported_ns=MS)
    for _ in range(200):
        turns.look(now, part, {"a": demand, "b": Demand(launched=True, waiting=True, reported_ns=MS)})
        now += 50 * MS
    assert len(turns.accounts["a"].second) <= 21


def test_a_slot_with_a_limit_asks_before_it_launches_also_if_it_was_idle() -> None:
    turns, now = Turns(), 1_000 * MS
    idle, other = Demand(limit=0.05, ceiling=0.05), Demand()
    turns.look(now, 1.0, {"a": idle, "b": other})
    assert turns.plans.keys() == {"a"}  # nobody else waits
    assert not any(turns.plans["a"].has_turn(now + later * MS) for later in range(0, 700, 7))
    assert turns.ask("a", now + 300 * MS)
    held = [turns.plans["a"].has_turn(now + (300 + later) * MS) for later in range(400)]
    assert held[0]
    assert sum(held) < 0.08 * len(held)
    assert turns.competing


@pytest.mark.parametrize("joint_ms", [40, 160, 320])
@pytest.mark.parametrize("lefts", [(1.0,), (0.4, 1.0)], ids=["without hp", "hp comes and goes"])
def test_a_limit_holds_in_long_cycles_beside_a_job(lefts: tuple[float, ...], joint_ms: int) -> None:
    turns, now, used = Turns(), 1_000 * MS, [0.0]
    for check in range(200):
        left = lefts[check // 14 % len(lefts)]
        demand = Demand(limit=0.3 / max(0.3, left), ceiling=0.3, launched=True, waiting=True, reported_ns=MS)
        job = Demand(launched=True, waiting=True, reported_ns=MS)
        turns.look(now, left, {"a": demand, "b": job}, False, {"b": Window(0.0, 0.3)}, joint_ms * MS)
        for at in range(now, now + 70 * MS, MS):
            used.append(used[-1] + left * turns.plans["a"].has_turn(at))
        now += 70 * MS
    seconds = [used[at + 1_000] - used[at] for at in range(2_000, len(used) - 1_000, 10)]
    assert max(seconds) < 0.3 * 1_000 + 0.2 * 0.3 * joint_ms + 40  # a part of a turn, and handovers
    assert sum(seconds) / len(seconds) > 0.25 * 1_000


def test_bursts_of_a_slot_with_a_limit_stay_below_it() -> None:
    """It works for 0.5 s at a time, if it may, after pauses of 2.2 s, in which the agent looks seldom."""
    turns, now, next_look, used = Turns(), 1_000_000 * MS, 0, [0]
    idle_since, working_since = now, 0
    reported = 0
    while now < 1_000_000 * MS + 30_000 * MS:
        if now >= next_look:
            working = bool(working_since)
            turns.look(
                now,
                1.0,
                {"a": Demand(limit=0.05, ceiling=0.05, reported_ns=reported, launched=working, waiting=working)},
            )
            next_look, reported = now + (70 if turns.competing else 500) * MS, 0
        if not working_since and now - idle_since > 2_200 * MS:
            working_since = now
            turns.ask("a", now)
        works = bool(working_since) and turns.plans["a"].has_turn(now)
        used.append(used[-1] + MS * works)
        reported += MS * works
        if working_since and now - working_since > 500 * MS:
            idle_since, working_since = now, 0
        now += MS
    assert max(used[at + 1000] - used[at] for at in range(0, len(used) - 1000, 10)) < 0.07 * 1_000 * MS
