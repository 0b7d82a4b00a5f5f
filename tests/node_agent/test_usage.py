"""What slots were due, charged, used and waited: the arithmetic, on plain values."""

from collections import Counter
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.node_agent.sharing.demand import Demand
from orion.node_agent.sharing.turns import Turns
from orion.node_agent.sharing.usage import SlotUsage, Usage
from orion.node_agent.sharing.windows import Look

MS, SECOND = 1_000_000, 1_000_000_000
STEP_NS = 25 * MS


class Work:
    """What the clients of a be slot do all the time; times are parts of the time."""

    def __init__(self, request: float = 0.0, reported: float = 0.5, waited: float = 0.5) -> None:
        self.demand = Demand(request, 1.0, round(reported * STEP_NS), launched=True, waiting=True)
        self.waited_ns = round(waited * STEP_NS)

    @classmethod
    def of(cls, waited_ns: int = 0, **demand: Any) -> Self:
        made = cls()
        made.demand, made.waited_ns = Demand(**demand), waited_ns
        return made


class World:
    """A GPU whose slots do the same all the time, which passes in steps of 25 ms."""

    def __init__(self) -> None:
        self.usage, self.turns, self.now = Usage(), Turns(), 1_000 * SECOND

    def step(self, work: dict[str, Work], hp: float = 0.0, turns: bool = True, hp_waited: float = 0.0) -> None:
        self.now += STEP_NS
        used = Counter({"hp-0": round(hp * STEP_NS)} if hp else {})
        waited = Counter({name: each.waited_ns for name, each in work.items()} | {"hp-0": round(hp_waited * STEP_NS)})
        demands = {name: each.demand for name, each in work.items()}
        look = Look(self.now, STEP_NS, used.total(), used, used.total(), demands=demands, waited_ns=waited)
        took = bool(self.turns.plans)
        if turns:
            self.turns.look(look.now_ns, look.left, look.demands)
        self.usage.look(look, self.turns.accounts if turns and took else None)

    def run(self, seconds: float, work: dict[str, Work], **more: Any) -> None:
        for _ in range(round(seconds * SECOND / STEP_NS)):
            self.step(work, **more)


def test_parts_follow_the_requests_and_the_part_of_hp() -> None:
    world = World()
    world.run(30, {"be-0": Work(0.4), "be-1": Work(0.2, reported=0.25)}, hp=0.25)
    first, second = (world.usage.of(name).recent for name in ("be-0", "be-1"))
    assert first.seconds == pytest.approx(10, abs=1.1)
    assert (first.hp, first.turns) == pytest.approx((0.25, 1), abs=0.01)
    assert first.slot.due / second.slot.due == pytest.approx(2, rel=0.01)
    assert first.slot.due + second.slot.due == pytest.approx(0.75, abs=0.04)  # the rest is lost when turns pass on
    assert first.slot.charged == pytest.approx(first.slot.due, abs=0.01)
    assert (first.slot.measured, first.slot.waited, first.slot.wanted) == pytest.approx((0.5, 0.5, 1), abs=0.01)
    hp = world.usage.of("hp-0").recent.slot
    assert (hp.due, hp.charged, hp.measured, hp.waited) == pytest.approx((0.25, 0.25, 0.25, 0))


def test_hp_that_its_limit_holds_has_waited() -> None:
    world = World()
    world.run(3, {}, hp=0.5, hp_waited=0.4)
    hp = world.usage.of("hp-0").second.slot
    assert (hp.due, hp.charged, hp.waited, hp.wanted) == pytest.approx((0.5, 0.5, 0.4, 0.9))


def test_without_turns_a_slot_is_charged_what_it_uses_and_is_due_what_it_could_have() -> None:
    world = World()
    world.run(5, {"be-0": Work(reported=0.3), "be-1": Work.of(request=0.5)}, hp=0.2)
    alone, idle = (world.usage.of(name).second for name in ("be-0", "be-1"))
    assert alone.turns == 0
    assert (alone.slot.due, alone.slot.charged, alone.slot.measured) == pytest.approx((0.8, 0.3, 0.3))
    assert (idle.slot.due, idle.slot.charged, idle.slot.wanted) == (0, 0, 0)


def test_slots_that_may_take_no_turns_are_due_what_turns_would_give() -> None:
    world = World()
    world.run(5, {"be-0": Work(0.6), "be-1": Work(0.2)}, turns=False)
    assert world.usage.of("be-0").second.slot.due == pytest.approx(0.75)
    assert world.usage.of("be-0").second.slot.charged == pytest.approx(0.5)


def test_a_second_shows_a_change_that_ten_seconds_hide() -> None:
    world = World()
    world.run(12, {"be-0": Work(reported=0.9)})
    world.run(2, {"be-0": Work(reported=0.1)})
    found = world.usage.of("be-0")
    assert found.second.slot.measured == pytest.approx(0.1)
    assert found.recent.slot.measured > 0.7


def test_what_hp_took_before_a_slot_was_there_is_no_part_of_its_time() -> None:
    world = World()
    world.run(8, {})
    world.run(3, {"be-0": Work(), "be-1": Work()}, hp=0.9)
    found = world.usage.of("be-0").recent
    assert found.seconds == pytest.approx(3)
    assert (found.hp, found.turns) == pytest.approx((0.9, 1), abs=0.02)
    world.run(20, {"be-0": Work()}, hp=0.5)
    world.run(2, {"be-0": Work(), "be-1": Work()})
    assert world.usage.of("be-1").recent.hp == 0
    assert world.usage.of("be-0").recent.hp == pytest.approx(0.4, abs=0.05)


def test_totals_grow_until_the_last_client_has_left() -> None:
    world = World()
    world.run(4, {"be-0": Work(reported=0.5, waited=0.25)})
    totals = world.usage.of("be-0").totals
    assert (totals.measured, totals.charged, totals.waited) == pytest.approx((2 * SECOND, 2 * SECOND, SECOND))
    world.step({})
    assert world.usage.of("be-0") == SlotUsage()
    world.step({"be-0": Work()})
    again = world.usage.of("be-0")
    assert again.totals.measured == pytest.approx(0.5 * STEP_NS)
    assert again.recent.seconds == pytest.approx(STEP_NS / SECOND)
    assert again.recent.slot.measured == pytest.approx(0.5)


def test_a_slot_without_progress_is_shut_and_long_pieces_are_a_debt() -> None:
    world = World()
    stopped = Work.of(waiting=True)
    long = Work.of(reported_ns=STEP_NS, piece_ns=400 * MS, launched=True, waiting=True)
    world.run(5, {"be-0": Work(), "be-1": stopped})
    assert world.usage.of("be-1").recent.slot.shut > 0.5
    assert world.usage.of("be-1").recent.slot.wanted < 0.5
    world.run(3, {"be-0": Work(), "be-1": long})
    account, totals = world.turns.accounts["be-1"], world.usage.of("be-1").second.slot
    assert account.debt_ns > 0
    assert totals.charged > totals.due


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_no_report_of_a_client_makes_more_than_all_time(reports: list[int]) -> None:
    world = World()
    for number in reports:
        world.step({"be-0": Work.of(reported_ns=number, launched=True, waited_ns=number)})
    found = world.usage.of("be-0")
    assert found.totals.measured <= len(reports) * STEP_NS
    assert found.totals.waited <= len(reports) * STEP_NS
    assert 0 <= found.recent.slot.measured <= 1
