"""Turns on a modelled GPU: shares of each second, time that slots hand back, debts, limits, and clients that lie."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion.node_agent.pages.plans import Plan
from orion.node_agent.sharing.account import Demand
from orion.node_agent.sharing.cycles import PLAN_NS
from orion.node_agent.sharing.joint import Window
from orion.node_agent.sharing.turn_lengths import TurnLengths
from orion.node_agent.sharing.turns import Turns

MS = 1_000_000
STEP_NS = MS // 10
HANDOVER_NS = 2 * STEP_NS
""" A slot does nothing for so long after its turn has begun. """


@dataclass
class Tenant:
    """A slot on the modelled GPU.

    Args:
        request: the part of the time that it asks for; 0: none.
        limit: the part that it may use.
        honesty: the part of its GPU time that it reports.
        awake_ns: it works so long, then sleeps for as long; 0: it always works.
        piece_ns: its work runs on for so long after each of its turns.
        stopped: it says that it has work, and does nothing.
        handover_ns: its turns after those of others begin so late.
    """

    request: float = 0.0
    limit: float = 1.0
    honesty: float = 1.0
    awake_ns: int = 0
    piece_ns: int = 0
    stopped: bool = False
    handover_ns: int = HANDOVER_NS
    used: list[int] = field(default_factory=lambda: [0])
    reported_ns: float = 0.0
    handed_back: bool = False
    running_until_ns: int = 0

    def is_awake(self, now_ns: int) -> bool:
        return not self.awake_ns or now_ns // self.awake_ns % 2 == 0

    def demand(self, now_ns: int) -> Demand:
        total = self.used[-1] * self.honesty
        reported, self.reported_ns = int(total - self.reported_ns), total
        awake = self.is_awake(now_ns)
        worked = awake and not self.stopped
        return Demand(self.request, self.limit, reported, self.piece_ns, worked, awake, ceiling=self.limit)


def run(
    tenants: Iterable[Tenant], seconds: float, hp: float = 0.0, seed: int = 1, check_ns: int = 50 * MS
) -> dict[str, Tenant]:
    """Let the tenants use the GPU; hp takes the first part of each 5 ms."""
    turns, dice = Turns(), random.Random(seed)
    named = {f"be-{index}": each for index, each in enumerate(tenants)}
    now = looked = 1_000_000 * MS
    next_look, end = now, now + round(seconds * 1e9)
    while now < end:
        if now >= next_look:
            turns.look(now, 1 - hp, {name: each.demand(now) for name, each in named.items()})
            looked = now
            next_look = now + check_ns + dice.randrange(3 * MS)
        _send_messages(turns, named, now)
        free = now % (5 * MS) >= hp * 5 * MS
        _work(named, turns.plans, now, STEP_NS if free else 0)
        now += STEP_NS
    assert looked
    return named


def _send_messages(turns: Turns, tenants: Mapping[str, Tenant], now: int) -> None:
    for name, each in tenants.items():
        plan = turns.plans.get(name)
        if not each.is_awake(now) and plan is not None and plan.has_turn(now) and not each.handed_back:
            each.handed_back = True
            turns.hand_back(name, now)
        elif each.is_awake(now) and each.handed_back:
            each.handed_back = False
            turns.ask(name, now)


def _work(tenants: Mapping[str, Tenant], plans: Mapping[str, Plan], now: int, time_ns: int) -> None:
    working = []
    for name, each in tenants.items():
        plan = plans.get(name)
        has_turn = plan is None or (plan.has_turn(now) and not plan.begun(now - each.handover_ns, now + 1))
        if has_turn and each.is_awake(now) and each.piece_ns:
            each.running_until_ns = max(each.running_until_ns, now + each.piece_ns)
        if not each.stopped and each.is_awake(now) and (has_turn or now < each.running_until_ns):
            working.append(each)
    for each in tenants.values():
        each.used.append(each.used[-1] + (time_ns // len(working) if each in working else 0))


def shares(tenants: Mapping[str, Tenant], of_all: bool = True) -> list[list[float]]:
    """Return the parts that each tenant had in sliding windows of 1 s: of what all had, or of the time."""
    steps, skip = 1_000 * MS // STEP_NS, 2_000 * MS // STEP_NS
    starts = range(skip, len(next(iter(tenants.values())).used) - steps, 100)
    gained = [[each.used[at + steps] - each.used[at] for at in starts] for each in tenants.values()]
    whole = [sum(each) if of_all else 1_000 * MS for each in zip(*gained, strict=True)]
    return [[mine / every for mine, every in zip(each, whole, strict=True)] for each in gained]


def means(tenants: Mapping[str, Tenant], of_all: bool = True) -> list[float]:
    return [sum(each) / len(each) for each in shares(tenants, of_all)]


@pytest.mark.parametrize(
    ("requests", "due"),
    [
        ((0.0, 0.0), (0.5, 0.5)),
        ((0.3, 0.6, 0.1), (0.3, 0.6, 0.1)),
        ((0.4, 0.2, 0.0), (0.4, 0.2, 0.4)),
        ((0.0,) * 5, (0.2,) * 5),
        ((0.9, 0.9), (0.5, 0.5)),
    ],
)
def test_each_second_is_shared_by_request(requests: tuple[float, ...], due: tuple[float, ...]) -> None:
    found = shares(run([Tenant(request) for request in requests], 6.0))
    for windows, share in zip(found, due, strict=True):
        assert max(abs(each - share) for each in windows) < 0.01, (share, min(windows), max(windows))


def test_what_a_handover_costs_each_slot_is_learnt() -> None:
    tenants = [Tenant(0.6, handover_ns=STEP_NS), Tenant(0.2), Tenant(0.2, handover_ns=4 * STEP_NS)]
    for windows, share in zip(shares(run(tenants, 8.0)), (0.6, 0.2, 0.2), strict=True):
        assert max(abs(each - share) for each in windows) < 0.006, (share, min(windows), max(windows))


def test_shares_hold_beside_hp() -> None:
    found = means(run([Tenant(0.5), Tenant(0.25), Tenant(0.25)], 6.0, hp=0.6))
    assert found == pytest.approx([0.5, 0.25, 0.25], abs=0.01)


def test_limits_hold_on_an_idle_gpu() -> None:
    assert means(run([Tenant(limit=0.5)], 6.0), of_all=False) == pytest.approx([0.5], abs=0.005)
    assert means(run([Tenant(limit=0.3), Tenant(limit=0.4)], 6.0), of_all=False) == pytest.approx([0.3, 0.4], abs=0.005)


@pytest.mark.parametrize("check_ns", [25 * MS, 69 * MS, 100 * MS])
@pytest.mark.parametrize("limits", [(0.3,), (0.5,), (0.3, 0.4)])
def test_a_limit_holds_in_each_second(limits: tuple[float, ...], check_ns: int) -> None:
    found = shares(run([Tenant(limit=limit) for limit in limits], 8.0, check_ns=check_ns), of_all=False)
    for windows, limit in zip(found, limits, strict=True):
        assert max(abs(each - limit) for each in windows) < 0.01, (limit, min(windows), max(windows))


@pytest.mark.parametrize(("limit", "piece_ms"), [(0.3, 100), (0.3, 200), (0.5, 150)])
def test_a_long_piece_waits_until_the_limit_has_room_for_it(limit: float, piece_ms: int) -> None:
    windows = shares(run([Tenant(limit=limit, piece_ns=piece_ms * MS)], 14.0), of_all=False)[0]
    assert max(windows) < limit + 0.08  # it would be up to 0.17 more if debts alone held the limit
    assert sum(windows) / len(windows) > 0.7 * limit


def test_time_that_a_slot_does_not_want_is_used_by_others() -> None:
    for awake_ns in (50 * MS, 200 * MS):
        worker, sleeper = means(run([Tenant(), Tenant(awake_ns=awake_ns)], 8.0), of_all=False)
        assert worker + sleeper > 0.96
        assert sleeper > 0.2  # half of the time it is awake, at least nearly


def test_a_slot_whose_work_runs_on_pays_for_it() -> None:
    free = means(run([Tenant(), Tenant(piece_ns=0)], 6.0))
    long = means(run([Tenant(), Tenant(piece_ns=30 * MS)], 10.0))
    assert free == pytest.approx([0.5, 0.5], abs=0.005)
    assert long[0] > 0.45  # without charges it would have a quarter


@pytest.mark.parametrize("honesty", [0.0, 0.5, 2.0, 1e9])
def test_reports_that_are_wrong_take_nothing_from_others(honesty: float) -> None:
    found = means(run([Tenant(honesty=honesty), Tenant(), Tenant()], 6.0))
    assert found[0] < 1 / 3 + 0.01
    assert min(found[1:]) > 1 / 3 - 0.01


def test_a_stopped_slot_costs_little() -> None:
    found = means(run([Tenant(), Tenant(stopped=True)], 20.0), of_all=False)
    assert found[0] > 0.95


@pytest.mark.parametrize("jump_ns", [0, 300 * MS, 5_000 * MS, 86_400_000 * MS], ids=["none", "300 ms", "5 s", "a day"])
def test_shares_recover_after_a_check_that_is_late(jump_ns: int) -> None:
    """CLOCK_MONOTONIC stands still in a machine that is suspended; in a paused virtual machine it may jump."""
    turns, now = Turns(), 1_000 * MS
    requests = {"a": 0.5, "b": 0.3, "c": 0.2}
    demands = {name: Demand(request, waiting=True, launched=True, reported_ns=MS) for name, request in requests.items()}

    def look_for(ns: int) -> dict[str, float]:
        """Check every 25 ms; return the part of the time that each slot had in its turns, as their plans said."""
        nonlocal now
        had, end, begin = dict.fromkeys(requests, 0), now + ns, now
        while now < end:
            turns.look(now, 1.0, demands)
            for name, plan in turns.plans.items():
                had[name] += plan.time(now, now + 50 * MS)
            now += 50 * MS
        return {name: time / (now - begin) for name, time in had.items()}

    look_for(1_000 * MS)
    assert all(plan.until_ns == now - 50 * MS + PLAN_NS for plan in turns.plans.values())
    now += jump_ns - 50 * MS  # no jump: two checks at the same time
    turns.look(now, 1.0, demands)
    assert look_for(1_000 * MS) == pytest.approx(requests, abs=0.05)
    assert look_for(1_000 * MS) == pytest.approx(requests, abs=0.02)


def test_nobody_waits_long_while_checks_are_late_again_and_again() -> None:
    """A correction repeats in each cycle until the next check: if each were as large as usual, shares would swing."""
    turns, now = Turns(), 1_000 * MS
    requests = {"a": 0.5, "b": 0.3, "c": 0.2}
    demands = {name: Demand(part, waiting=True, launched=True, reported_ns=MS) for name, part in requests.items()}
    had = {name: [now] for name in demands}
    for check in range(200):
        turns.look(now, 1.0, demands)
        span = 243 * MS if check > 100 else 50 * MS
        for at in range(now, now + span, MS):
            for name, plan in turns.plans.items():
                had[name] += [at] * plan.has_turn(at)
        now += span
    waits = {name: max(later - at for at, later in pairwise(times)) / MS for name, times in had.items()}
    assert max(waits.values()) < 250, waits  # usually 25 ms


def test_turns_end_when_one_slot_is_left() -> None:
    turns = Turns()
    both = {"a": Demand(waiting=True), "b": Demand(waiting=True)}
    turns.look(1_000 * MS, 1.0, both)
    assert turns.plans.keys() == {"a", "b"}
    for now in range(1_025, 3_000, 25):
        turns.look(now * MS, 1.0, {"a": Demand(waiting=True, launched=True, reported_ns=MS), "b": Demand()})
    assert not turns.plans


def test_turns_are_longer_while_memory_moves() -> None:
    demands = {name: Demand(waiting=True, launched=True, reported_ns=MS) for name in "abc"}
    turns, now, lengths = Turns(), 1_000 * MS, {0: set[int](), 300 * MS: set[int]()}
    for average_ns in lengths:
        for _ in range(40):
            turns.look(now, 1.0, demands, average_ns=average_ns)
            lengths[average_ns] |= {end - begin for begin, end in (plan.next for plan in turns.plans.values())}
            now += 100 * MS
    assert max(lengths[0]) < 20 * MS
    assert any(270 * MS < length < 330 * MS for length in lengths[300 * MS])


def test_a_turn_that_lasts_ends_the_turns_of_others() -> None:
    both = {name: Demand(waiting=True, launched=True, reported_ns=MS) for name in "ab"}
    turns, now = Turns(), 1_000 * MS
    for _ in range(10):
        turns.look(now, 1.0, both)
        now += 20 * MS
    for later in range(0, 200, 3):  # b has just no more work, in any part of a cycle
        turns.look(now + later * MS, 1.0, both)
        turns.accounts["b"].wanted_ns -= 200 * MS
        turns.look(now + later * MS, 1.0, {"a": both["a"], "b": Demand()})
        assert turns.plans["a"].has_turn(now + (later + 60) * MS)
        for at in range(now + later * MS, now + (later + 60) * MS, MS):
            assert sum(plan.has_turn(at) for plan in turns.plans.values()) <= 1


def test_a_turn_that_is_handed_back_begins_the_next_one_at_once() -> None:
    turns, now = Turns(), 1_000 * MS
    demands = {name: Demand(waiting=True, launched=True, reported_ns=MS) for name in "abc"}
    turns.look(now, 1.0, demands)
    turns.look(now + MS, 1.0, demands)
    holder = _holder(turns, now + MS)
    assert turns.hand_back(holder, now + 2 * MS)
    assert _holder(turns, now + 2 * MS) not in (holder, "")
    assert not turns.plans[holder].has_turn(now + 60 * MS)
    assert turns.ask(holder, now + 3 * MS)
    assert _holder(turns, turns.plans[holder].next[0]) == holder


def _holder(turns: Turns, now: int) -> str:
    return next((name for name, plan in turns.plans.items() if plan.has_turn(now)), "")


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["look", "hand_back", "ask"]),
        st.integers(0, 40 * MS),
        st.sampled_from("abcd"),
        st.dictionaries(
            st.sampled_from("abcd"),
            st.builds(
                Demand,
                st.sampled_from([0.0, 0.01, 0.5, 1.0]),
                st.sampled_from([0.001, 0.3, 1.0]),
                st.integers(0, 2**70),
                st.integers(0, 2**64),
                st.booleans(),
                st.booleans(),
            ),
        ),
        st.floats(0, 1),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(EVENTS)
def test_at_most_one_slot_has_the_turn_and_each_plan_ends(
    events: list[tuple[str, int, str, dict[str, Demand], float]],
) -> None:
    turns, now = Turns(), 1_000 * MS
    for kind, later, name, demands, part in events:
        now += later
        if kind == "look":
            turns.look(now, part, demands)
        else:
            (turns.hand_back if kind == "hand_back" else turns.ask)(name, now)
        for at in (now, now + 7 * MS, now + 19 * MS, now + 113 * MS):
            assert sum(plan.has_turn(at) for plan in turns.plans.values()) <= 1
        for plan in turns.plans.values():
            assert plan.until_ns <= now + PLAN_NS
            assert all(0 <= word < 2**63 for word in plan.words)


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


@pytest.mark.parametrize("longest_ms", [None, 10.0, 3.0, 1.0])
def test_a_silent_client_gains_a_point_at_most_whatever_the_turns_last(longest_ms: float | None) -> None:
    turns, now = Turns(TurnLengths.of(0.5 if longest_ms else 0.8, longest_ms)), 1_000 * MS
    had, reported = [0, 0], 0
    for step in range(300):
        each = [
            Demand(reported_ns=0, launched=True, waiting=True),
            Demand(reported_ns=reported, launched=True, waiting=True),
        ]
        turns.look(now, 1.0, {"liar": each[0], "honest": each[1]})
        times = [turns.plans[name].time(now, now + 70 * MS) for name in ("liar", "honest")]
        reported = max(0, times[1] - HANDOVER_NS * turns.plans["honest"].begun(now, now + 70 * MS))
        if step > 100:
            had = [before + time for before, time in zip(had, times, strict=True)]
        now += 70 * MS
    assert had[0] / sum(had) < 0.511
