"""Turns on a modelled GPU: shares of each second, time that slots hand back, debts, and clients that lie."""

from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion.node_agent.sharing.cycles import PLAN_NS
from orion.node_agent.sharing.demand import Demand
from orion.node_agent.sharing.joint import Window
from orion.node_agent.sharing.turn_lengths import TurnLengths
from orion.node_agent.sharing.turns import LONG_PIECES_LOOK_NS, LOOK_NS, STEADY_LOOK_NS, Turns
from tests.node_agent.modelled_gpu import HANDOVER_NS, MS, STEP_NS, Tenant, means, run, shares


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


def test_time_that_a_slot_does_not_want_is_used_by_others() -> None:
    for awake_ns in (50 * MS, 200 * MS):
        worker, sleeper = means(run([Tenant(), Tenant(awake_ns=awake_ns)], 8.0), of_all=False)
        assert worker + sleeper > 0.96
        assert sleeper > 0.2  # half of the time it is awake, at least nearly


@pytest.mark.parametrize(("bursts", "asked", "due"), [(5, 0.1, 0.1), (7, 0.2, 0.2), (7, 0.0, 1 / 8), (12, 0.05, 0.05)])
def test_slots_that_ask_again_and_again_leave_others_their_part(bursts: int, asked: float, due: float) -> None:
    """Each of them asks a few times in each cycle, for less than a turn."""
    restless = [Tenant(burst_ns=MS, pause_ns=(3500 + 100 * index) * MS // 1000) for index in range(bursts)]
    assert means(run([Tenant(asked), *restless], 6.0), of_all=False)[0] > 0.95 * due


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


def test_a_slot_that_was_stopped_long_gets_turns_soon_after_it_asks() -> None:
    """Nothing shows its progress if all that it did before was reported before."""
    turns, now = Turns(), 1_000 * MS
    demands = {"works": Demand(launched=True, waiting=True), "stopped": Demand(waiting=True)}
    shut: list[int] = []
    while len(shut) < 3:
        now += turns.look_ns
        turns.look(now, 1.0, demands)
        until = turns.accounts["stopped"].progress.shut_until_ns
        if until > now and until not in shut:
            shut.append(until)
    assert shut[-1] - now > 3_900 * MS
    for passed, gets in ((10, False), (900, False), (1_001, True)):
        assert turns.ask("stopped", now + passed * MS) is gets
    assert turns.plans["stopped"].time(now + 1_001 * MS, now + 1_100 * MS) > 0


@pytest.mark.parametrize("stall_ms", [0, 1_000])
def test_a_slot_that_may_still_wait_for_hp_without_progress_is_judged_later(stall_ms: int) -> None:
    """A process of it begins to wait for hp late, so it waits for the stall time after the agent does not."""
    turns, now, bears_ms = Turns(), 1_000 * MS, stall_ms + 100
    demands = {"works": Demand(launched=True, waiting=True), "waits": Demand(waiting=True)}
    waited_ms, held_ns = 0, 0
    turns.look(now, 1.0, demands, hp_stall_ns=stall_ms * MS)
    while not turns.accounts["waits"].progress.shut_until_ns:
        before, now, waited_ms = now, now + 25 * MS, waited_ms + 25
        held_ns += turns.plans["waits"].time(before, now)
        turns.look(now, 1.0, demands, hp_stall_ns=stall_ms * MS)
        assert waited_ms < 3 * bears_ms, "hp that hangs protects no slot for ever"
    assert bears_ms * MS * 0.8 < held_ns < (bears_ms + 50) * MS


@pytest.mark.parametrize("stalls", [1, 2])
def test_hp_that_hangs_protects_a_slot_once_also_if_it_launches_now_and_then(stalls: int) -> None:
    turns, now, held_ns = Turns(), 1_000 * MS, 0
    demands = {"works": Demand(launched=True, waiting=True, reported_ns=MS), "pretends": Demand(waiting=True)}
    turns.look(now, 1.0, demands)
    for _ in range(stalls):
        turns.look(now, 1.0, demands | {"pretends": Demand(waiting=True, launched=True)})  # hp makes progress
        for look in range(400):
            turns.ask("pretends", now)
            before, now = now, now + 25 * MS
            held_ns += turns.plans["pretends"].time(before, now)
            launched = look % 80 == 79
            pretends = Demand(waiting=True, launched=launched)
            turns.look(now, 1.0, demands | {"pretends": pretends}, hp_stall_ns=1_000 * MS)
    assert 1_000 * MS < held_ns / stalls < 2_200 * MS


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


def test_who_asks_after_everybody_has_handed_back_has_the_turn_at_once() -> None:
    turns, now = Turns(), 1_000 * MS
    first, second = _who_hands_back_and_who_follows(turns, now)
    assert not turns.hand_back(second, now + 4 * MS)  # nobody waits for its turn
    assert _holder(turns, now + 5 * MS) == second
    assert turns.ask(first, now + 5 * MS)
    assert _holder(turns, now + 5 * MS) == first


def test_who_works_again_after_it_handed_back_alone_asks_if_another_one_took_its_turn() -> None:
    turns, now = Turns(), 1_000 * MS
    first, second = _who_hands_back_and_who_follows(turns, now)
    turns.hand_back(second, now + 4 * MS)
    turns.look(now + 5 * MS, 1.0, BOTH)
    assert turns.accounts[second].wants
    turns.hand_back(first, now + 6 * MS)
    turns.hand_back(second, now + 7 * MS)
    assert turns.ask(first, now + 8 * MS)
    assert turns.ask(second, now + 9 * MS)
    assert turns.plans[second].next[0] <= now + 8 * MS + TurnLengths().shortest_ns + 30 * MS


def test_launches_from_before_a_turn_was_handed_back_want_no_turn() -> None:
    turns, now = Turns(), 1_000 * MS
    _, second = _who_hands_back_and_who_follows(turns, now)
    turns.hand_back(second, now + 4 * MS)
    launched = {name: Demand(launched=True) for name in "ab"}
    turns.look(now + 200 * MS, 1.0, launched)  # clients write every 250 ms how much they have launched
    assert not turns.accounts[second].wants
    turns.look(now + 400 * MS, 1.0, launched)
    assert turns.accounts[second].wants is turns.plans[second].has_turn(now + 400 * MS)


BOTH = {name: Demand(waiting=True, launched=True, reported_ns=MS) for name in "ab"}


def _who_hands_back_and_who_follows(turns: Turns, now: int) -> tuple[str, str]:
    """Let two slots take turns, the first hand its turn back within 2 ms, and the other one follow it."""
    for at in (now, now + MS):
        turns.look(at, 1.0, BOTH)
    first = _holder(turns, now + MS)
    turns.hand_back(first, now + 2 * MS)
    return first, _holder(turns, now + 3 * MS)


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


@pytest.mark.parametrize(
    ("demand", "part", "windows", "look_ns"),
    [
        (Demand(), 1.0, {}, STEADY_LOOK_NS),
        (Demand(piece_ns=MS // 2), 1.0, {}, STEADY_LOOK_NS),
        (Demand(), 0.9, {}, LOOK_NS),
        (Demand(ceiling=0.5, limit=0.5), 1.0, {}, LOOK_NS),
        (Demand(piece_ns=MS), 1.0, {}, LOOK_NS),
        (Demand(), 1.0, {"a": Window(0.0, 0.3)}, LOOK_NS),
        (Demand(piece_ns=3 * MS), 1.0, {}, LONG_PIECES_LOOK_NS),
    ],
)
def test_turns_that_nothing_disturbs_are_checked_rarely(
    demand: Demand, part: float, windows: Mapping[str, Window], look_ns: int
) -> None:
    turns, working = Turns(), {"launched": True, "waiting": True, "reported_ns": MS}
    demands = {"a": demand._replace(**working), "b": Demand(**working)}  # type: ignore[arg-type]
    for now in (1_000 * MS, 1_070 * MS):
        turns.look(now, part, demands, False, windows, 40 * MS)
    assert turns.look_ns == look_ns
