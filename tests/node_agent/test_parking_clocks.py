"""The clocks that say whose turn it is: they run while somebody waits, and nobody falls behind by hours."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion.node_agent.parking.clocks import clocks
from orion.node_agent.parking.view import Place
from tests.node_agent.parking_views import FACTOR, tenant

HERE = tenant("here", Place.HERE, 4, clock=10.0, weight=0.25)
AWAY = tenant("away", Place.AWAY, 4, clock=7.0)
NEW = tenant("new", Place.HERE, 4, clock=float("-inf"))


def test_a_clock_runs_by_the_weight_of_that_time_while_somebody_waits_who_may_come_back() -> None:
    passed = {"here": 3.0}
    assert clocks([HERE, AWAY], passed, FACTOR) == {"here": 22.0, "away": 7.0}
    assert clocks([HERE, NEW], passed, FACTOR)["here"] == 10.0
    assert clocks([HERE, replace(AWAY, is_wished_away=True)], passed, FACTOR)["here"] == 10.0
    assert clocks([HERE, replace(AWAY, parks=False)], passed, FACTOR)["here"] == 22.0, "it may park no more, and waits"


def test_who_begins_or_could_not_come_back_has_had_as_much_as_who_has_had_the_least() -> None:
    wished_away = replace(AWAY, name="wished away", clock=1.0, is_wished_away=True)
    never_leaves = replace(HERE, name="never leaves", clock=0.0, parks=False)
    read = clocks([HERE, AWAY, NEW, wished_away, never_leaves], {}, FACTOR)
    assert read == {"here": 10.0, **dict.fromkeys(("away", "new", "wished away", "never leaves"), 7.0)}
    assert clocks([NEW], {}, FACTOR) == {"new": 0.0}
    assert clocks([HERE, replace(AWAY, clock=99.0, is_wished_away=True)], {}, FACTOR)["away"] == 99.0


@pytest.mark.parametrize(
    ("change_seconds", "weight", "most"), [(6.0, 1.0, 360.0), (6.0, 0.5, 720.0), (0.0, 1.0, 180.0)]
)
def test_nobody_is_further_behind_than_three_rounds(change_seconds: float, weight: float, most: float) -> None:
    ahead = replace(HERE, clock=1e6, change_seconds=change_seconds, weight=weight)
    assert clocks([ahead, AWAY], {}, FACTOR) == {"here": 1e6, "away": 1e6 - most}


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 10**5), st.sampled_from(Place)), min_size=1, max_size=8))
def test_the_order_stays_however_far_behind_somebody_is(drawn: list[tuple[int, Place]]) -> None:
    rivals = [replace(AWAY, name=str(i), clock=float(clock), place=place) for i, (clock, place) in enumerate(drawn)]
    read = clocks(rivals, {}, FACTOR)
    for one, other in pairwise(sorted(rivals, key=lambda each: each.clock)):
        assert (read[one.name] < read[other.name]) == (one.clock < other.clock)
        assert read[other.name] - read[one.name] == min(180.0, other.clock - one.clock)
    assert all(read[each.name] >= each.clock for each in rivals)
    assert clocks([replace(each, clock=read[each.name]) for each in rivals], {}, FACTOR) == read
