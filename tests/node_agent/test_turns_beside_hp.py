"""Turns beside an hp that works in each period for a while, and then lingers, on the modelled GPU."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.node_agent.pages.plans import Plan
from orion.node_agent.sharing.beside_hp import BesideHp
from tests.node_agent.modelled_gpu import MS, STEP_NS, Hp, Tenant, means, run

DUE = (0.6, 0.3, 0.1)


@pytest.mark.parametrize(
    ("period_ms", "busy", "off"),
    [
        (5, 0.3, 0.02),
        (10, 0.5, 0.025),
        (20, 0.3, 0.03),
        (20, 0.5, 0.05),
        (21, 0.3, 0.025),
        (40, 0.3, 0.025),
        (60, 0.5, 0.025),
    ],
)
def test_shares_hold_beside_an_hp_of_any_period(period_ms: int, busy: float, off: float) -> None:
    """A cycle takes about 20 ms, so hp may work in the turns of the same slots for long."""
    period = period_ms * MS
    tenants = list(run([Tenant(due) for due in DUE], 9.0, Hp(period, round(busy * period), 2 * MS)).values())
    span, skip = 2_000 * MS // STEP_NS, 1_000 * MS // STEP_NS
    for begin in range(skip, len(tenants[0].used) - span, 500):
        had = [each.used[begin + span] - each.used[begin] for each in tenants]
        found = [each / sum(had) for each in had]
        assert found == pytest.approx(DUE, abs=off)


@pytest.mark.parametrize(("period_ms", "busy"), [(8, 0.3), (11, 0.3), (20, 0.3), (27, 0.3)])
def test_a_slot_has_its_limit_also_where_hp_lingers(period_ms: int, busy: float) -> None:
    period = period_ms * MS
    found = means(run([Tenant(limit=0.3)], 6.0, Hp(period, round(busy * period), 2 * MS)), of_all=False)[0]
    assert 0.28 < found < 0.305


SPANS = st.lists(st.integers(0, 100), max_size=12, unique=True).map(
    lambda edges: list(zip(sorted(edges)[::2], sorted(edges)[1::2], strict=False))
)


@given(SPANS, st.integers(1, 99), st.floats(0, 1))
def test_the_parts_of_turns_are_what_hp_left_of_them(closed: list[tuple[int, int]], edge: int, part: float) -> None:
    plans = {
        "a": Plan((0, edge), (0, 0), 0, 100),
        "b": Plan((edge, 100), (0, 0), 0, 100),
        "c": Plan((0, 0), (0, 0), 0, 100),
    }
    beside = BesideHp()
    beside.note(plans, 0, 50)
    beside.note(plans, 50, 100)
    left = 1 - sum(end - begin for begin, end in closed) / 100
    parts = beside.parts(left, 0, 100, closed, plans)
    assert not beside.parts(part, 0, 100, closed, plans)
    assert bool(parts) is bool(closed)
    if parts:
        assert parts["a"] * edge + parts["b"] * (100 - edge) == pytest.approx(100 * left)
        free = [at for at in range(edge) if not any(begin <= at < end for begin, end in closed)]
        assert parts["a"] * edge == pytest.approx(len(free))
        assert "c" not in parts


def test_times_of_hp_that_are_not_known_count_for_all_turns() -> None:
    beside = BesideHp()
    beside.note({"a": Plan((0, 60), (0, 0), 0, 100), "b": Plan((60, 100), (0, 0), 0, 100)}, 0, 100)
    assert beside.parts(0.4, 0, 100, [(40, 60)], ()) == pytest.approx({"a": 0.4 / 0.8 * 40 / 60, "b": 0.4 / 0.8})
