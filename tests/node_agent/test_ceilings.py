"""The limit of an hp slot on a modelled GPU: what it used in each second, and how long it waited."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion.hook import layout
from orion.node_agent.pages.plans import Plan
from orion.node_agent.sharing.ceilings import PLAN_NS, Ceiling, Ceilings

MS = 1_000_000
STEP_NS = MS // 10
START_NS = 1_000_000 * MS


def run(limit: float, wants: Callable[[int], bool], seconds: float, runs_on_ns: int = 0, seed: int = 1) -> list[int]:
    """Return what the slot has used after each step.

    Args:
        limit: of the slot.
        wants: whether it has work, by the time since the start.
        seconds: how long the model runs.
        runs_on_ns: its work runs on for so long after it may no longer launch.
        seed: of the agent's delays.
    """
    ceiling, dice, used = Ceiling(), random.Random(seed), [0]
    now = next_look = START_NS
    looked_at, running_until = 0, 0
    plan: Plan | None = None
    while now < START_NS + seconds * 1e9:
        if now >= next_look:
            ceiling.look(now, used[-1] - looked_at, limit)
            plan = ceiling.plan(now, None)
            looked_at, next_look = used[-1], now + 25 * MS + dice.randrange(3 * MS)
        if wants(now - START_NS) and (plan is None or plan.has_turn(now)):
            running_until = max(running_until, now + STEP_NS + runs_on_ns)
        used.append(used[-1] + (STEP_NS if now < running_until else 0))
        now += STEP_NS
    return used


def windows(used: list[int], skip_seconds: float) -> list[float]:
    steps = 1_000 * MS // STEP_NS
    return [(used[at + steps] - used[at]) / 1e9 for at in range(int(skip_seconds * steps), len(used) - steps, 50)]


@pytest.mark.parametrize("limit", [0.1, 0.3, 0.5, 0.9])
def test_a_slot_that_always_has_work_settles_at_its_limit(limit: float) -> None:
    found = windows(run(limit, lambda at: True, 15), 10)
    assert (min(found), max(found)) == pytest.approx((limit, limit), abs=0.006)


def test_work_that_runs_on_counts() -> None:
    """Each time 40 ms of work are in flight when the slot must stop."""
    found = windows(run(0.5, lambda at: True, 20, runs_on_ns=40 * MS), 10)
    assert sum(found) / len(found) == pytest.approx(0.5, abs=0.005)


def test_a_slot_below_its_limit_never_waits() -> None:
    def requests(at: int) -> bool:
        return at % (100 * MS) < 40 * MS

    used = run(0.5, requests, 10)
    assert used[-1] == sum(STEP_NS for step in range(len(used) - 1) if requests(step * STEP_NS))


@pytest.mark.parametrize("limit", [0.05, 0.1, 0.3, 0.6])
def test_a_slot_that_uses_little_never_waits_also_after_it_was_at_its_limit(limit: float) -> None:
    def requests(at: int) -> bool:
        # 37 ms: late in a cycle, in which a slot at its limit pauses.
        seldom = at % (1_000 * MS) in range(37 * MS, 45 * MS)
        return 2_000 * MS <= at < 4_000 * MS or ((at > 6_000 * MS or at < 2_000 * MS) and seldom)

    used = run(limit, requests, 10)
    for second in (0, 1, 7, 8, 9):
        first, last = (used[(second * 1_000 + milliseconds) * MS // STEP_NS] for milliseconds in (37, 45))
        assert last - first == 8 * MS, second


def test_a_burst_after_a_pause_may_use_most_of_the_second() -> None:
    used = run(0.5, lambda at: at >= 3_000 * MS, 4.0)
    at_once = next(step for step in range(len(used)) if step * STEP_NS >= 3_440 * MS)
    assert used[at_once] == pytest.approx(440 * MS, abs=MS)
    assert used[-1] <= 0.56e9


@given(limit=st.floats(0.05, 0.95), period=st.integers(5, 900), part=st.floats(0.05, 1.0), seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_no_second_has_much_more_than_the_limit(limit: float, period: int, part: float, seed: int) -> None:
    used = run(limit, lambda at: at % (period * MS) < part * period * MS, 6, seed=seed)
    assert max(windows(used, 0)) < limit * 1.05 + 0.055  # the reach, and what passes until the next check


def test_a_plan_ends_by_itself_and_slots_without_a_limit_have_none() -> None:
    ceilings = Ceilings()
    assert not ceilings.active
    ceilings.look(START_NS - 1_000 * MS, {"hp-1": 0}, {"hp-0": 0.5, "hp-1": 1.0})
    assert not ceilings.watched
    for step in range(41):
        ceilings.look(START_NS + step * 25 * MS, {"hp-0": 25 * MS, "hp-1": 25 * MS}, {"hp-0": 0.5, "hp-1": 1.0})
    now = START_NS + 40 * 25 * MS
    assert ceilings.active
    assert ceilings.plans.keys() == {"hp-0"}
    assert ceilings.plans["hp-0"].until_ns == now + PLAN_NS
    assert not ceilings.plans["hp-0"].has_turn(now)
    ceilings.look(now + 1_500 * MS, {"hp-0": 0}, {"hp-0": 0.5, "hp-1": 1.0})
    assert not ceilings.active
    assert ceilings.watched, "it may begin to work at any time"
    ceilings.look(now + 1_525 * MS, {}, {"hp-0": 1.0, "hp-1": 1.0})
    assert not ceilings.plans
    assert not ceilings.watched


def test_hp_slots_launch_nothing_in_the_floor_that_they_leave_to_be() -> None:
    ceilings, cycle = Ceilings(), layout.FLOOR_CYCLE_MS * MS
    begin = START_NS // cycle * cycle + cycle
    ceilings.look(begin - MS, {"hp-0": 25 * MS, "hp-1": 25 * MS}, {"hp-0": 0.99, "hp-1": 1.0}, sure=0.9)
    for plan in ceilings.plans.values():
        assert [plan.time(at, at + cycle) for at in (begin, begin + cycle)] == [0.9 * cycle] * 2
        assert not plan.has_turn(begin + 181 * MS)
    assert ceilings.plans.keys() == {"hp-0", "hp-1"}
    ceilings.look(begin, {}, {"hp-0": 1.0, "hp-1": 1.0}, sure=1.0)
    assert not ceilings.plans


def test_a_limit_that_leaves_be_less_than_its_floor_leaves_the_floor() -> None:
    ceilings, cycle = Ceilings(), layout.FLOOR_CYCLE_MS * MS
    for step in range(80):  # hp has settled at its limit before be comes
        now = START_NS + step * 25 * MS
        ceilings.look(now, {"hp-0": round(0.9 * 25 * MS)}, {"hp-0": 0.9})
    begin = now // cycle * cycle + cycle
    ceilings.look(begin, {"hp-0": round(0.9 * 25 * MS)}, {"hp-0": 0.9}, sure=0.5)
    plan = ceilings.plans["hp-0"]
    assert plan.time(begin, begin + cycle) == 0.5 * cycle
    assert not plan.has_turn(begin + 101 * MS)
