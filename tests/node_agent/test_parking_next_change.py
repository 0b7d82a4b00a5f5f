"""When the agent must decide again although nothing is new: only because time has passed."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orion.node_agent.parking.deciding import decide
from orion.node_agent.parking.next_change import next_change
from orion.node_agent.parking.view import Place, Room, Tenant, View, Wishes
from tests.node_agent.parking_views import GIB, A, tenant, view

NOW = 1000.0
HERE = tenant("here", Place.HERE, 4, clock=10.0)
AWAY = tenant("away", Place.AWAY, 4)


def later(seen: View, seconds: float) -> View:
    """Return what is seen when only time has passed."""
    waits = any(each.place is Place.AWAY for each in seen.tenants)
    tenants = (
        replace(each, clock=each.clock_after(seconds)) if waits and each.place is Place.HERE else each
        for each in seen.tenants
    )
    return replace(seen, now=seen.now + seconds, tenants=tuple(tenants))


@pytest.mark.parametrize(
    ("here", "away", "seconds"),
    [
        pytest.param(replace(HERE, since=990.0, change_seconds=1.0), AWAY, 10.0, id="it has stayed for the least time"),
        pytest.param(replace(HERE, refused_until=1005.0), AWAY, 5.0, id="it may be asked again"),
        pytest.param(HERE, replace(AWAY, came=995.0, change_seconds=1.0), 15.0, id="the other one may come back"),
        pytest.param(HERE, replace(AWAY, clock=13.0), 3.0, id="it has had more than the other one"),
        pytest.param(replace(HERE, weight=0.5), replace(AWAY, clock=16.0), 3.0, id="the same with half its weight"),
    ],
)
def test_somebody_moves_at_the_next_change(here: Tenant, away: Tenant, seconds: float) -> None:
    seen = view(0, here, away, now=NOW)
    assert next_change(seen) == NOW + seconds
    assert decide(later(seen, 0)) == decide(later(seen, seconds - 0.01)) == Wishes()
    assert decide(later(seen, seconds + 0.01)).leave == ("here",)


def test_while_hp_grows_each_moment_may_change_something() -> None:
    seen = view(1, replace(HERE, since=990.0, has_returned=True, change_seconds=1.0), now=NOW, rate=0.1, most=4)
    assert next_change(seen) == NOW


def test_without_anybody_who_waits_time_changes_nothing() -> None:
    assert next_change(view(0, HERE, now=NOW)) == float("inf")


def quarters(least: int, most: int) -> st.SearchStrategy[float]:
    """Draw amounts whose sums are exact."""
    return st.integers(4 * least, 4 * most).map(lambda quarter: quarter / 4)


@st.composite
def turns(draw: st.DrawFn) -> View:
    """A GPU on which tenants take turns, shortly before somebody may have to move."""
    lately = quarters(950, 1000)
    tenants = [
        Tenant(
            name=str(number),
            place=draw(st.sampled_from([Place.HERE, Place.AWAY])),
            since=draw(lately),
            held={A: draw(st.integers(1, 4)) * GIB},
            has_returned=True,
            weight=draw(st.sampled_from([0.25, 0.5, 1.0])),
            clock=draw(quarters(0, 20)),
            change_seconds=draw(quarters(0, 4)),
            came=draw(lately),
            refused_until=draw(st.just(-1.0) | quarters(1000, 1050)),
        )
        for number in range(draw(st.integers(1, 5)))
    ]
    return View(NOW, {A: Room(draw(st.integers(0, 4)) * GIB, draw(st.integers(0, 1)) * GIB)}, tuple(tenants))


@settings(max_examples=400)
@given(turns(), st.floats(0, 0.999))
def test_before_the_next_change_time_alone_moves_nobody(seen: View, part: float) -> None:
    assume(decide(seen) == Wishes())
    assert decide(later(seen, part * min(100.0, next_change(seen) - NOW))) == Wishes()
