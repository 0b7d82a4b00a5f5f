"""How often the agent looks at those who park, asks the driver, and decides."""

from types import SimpleNamespace
from typing import Any

import pytest

from orion.node_agent.parking.pace import HP_SECONDS, LOOK_SECONDS, QUIET_SECONDS, REST_SECONDS, Pace, next_decision
from orion.node_agent.parking.view import Place, Wishes
from orion.node_agent.parking.waking import Waking
from tests.node_agent.parking_views import A, tenant, view

NOW = 1000.0


def present(place: Place = Place.HERE, rests: bool = True, done_at: float = 0.0) -> Any:
    known = SimpleNamespace(place=place, done_at=done_at)
    return SimpleNamespace(known=known, rests=rests, changes_at=lambda now: float("inf"))


def card(has_hp: bool = False, hp: int = 0, owed: int = 0, cramped: int = 0, asked: float = NOW) -> Any:
    wishes = {
        name: SimpleNamespace(wished=size) for name, size in (("wishes", hp), ("owed", owed), ("cramped", cramped))
    }
    return SimpleNamespace(has_hp=has_hp, asked=asked, **wishes)


@pytest.mark.parametrize(
    ("one", "tenants", "seconds"),
    [
        pytest.param(card(), [present()], QUIET_SECONDS, id="all are here"),
        pytest.param(card(), [], QUIET_SECONDS, id="nobody is there"),
        pytest.param(card(has_hp=True), [present()], LOOK_SECONDS, id="hp"),
        pytest.param(card(), [present(), present(Place.AWAY)], LOOK_SECONDS, id="one is away"),
        pytest.param(card(), [present(rests=False)], LOOK_SECONDS, id="one has refused"),
        pytest.param(card(asked=NOW - 1), [present()], LOOK_SECONDS, id="the driver has not answered"),
    ],
)
def test_the_driver_is_asked_seldom_where_nothing_depends_on_it(one: Any, tenants: list[Any], seconds: float) -> None:
    pace = Pace()
    assert pace.in_turn(NOW, [A]) == {A}, "it has never been asked"
    pace.asked(NOW, {A: one}, {A: tenants})
    assert pace.in_turn(NOW + seconds - 0.01, [A]) == set()
    assert pace.in_turn(NOW + seconds, [A, "another"]) == {A, "another"}


@pytest.mark.parametrize(
    ("one", "moving", "undecided", "seconds"),
    [
        pytest.param(card(), [], False, 4.0, id="until the next question"),
        pytest.param(card(has_hp=True), [], False, HP_SECONDS, id="hp"),
        pytest.param(card(cramped=1), [], False, HP_SECONDS, id="be waits for room"),
        pytest.param(card(hp=1), [], False, 0.02, id="hp waits for room"),
        pytest.param(card(owed=1), [], False, 0.02, id="one waits for room of which it is sure"),
        pytest.param(card(), [], True, 0.05, id="the driver has not answered"),
        pytest.param(card(), [present(Place.LEAVING, done_at=NOW + 3)], False, 2.0, id="one moves"),
        pytest.param(card(), [present(Place.LEAVING, done_at=NOW)], False, 0.05, id="one may be done"),
        pytest.param(card(has_hp=True), [present(Place.LEAVING, done_at=NOW + 3)], False, 0.05, id="one moves, hp"),
    ],
)
def test_the_next_look(one: Any, moving: list[Any], undecided: bool, seconds: float) -> None:
    pace = Pace()
    pace.asked(NOW, {A: card()}, {})
    assert pace.seconds(NOW + 1, [one], moving, undecided) == pytest.approx(seconds)


def test_a_question_out_of_turn_only_brings_the_next_one_forward() -> None:
    """Else somebody who has left meanwhile would wait for the old turn, or frequent questions would put it off."""
    pace = Pace()
    pace.asked(NOW, {A: card()}, {A: [present()]})
    for at in (NOW + 1, NOW + 1.5):
        pace.asked(at, {A: card()}, {A: [present(Place.AWAY)]})
    assert pace.in_turn(NOW + 1.9, [A]) == set()
    assert pace.in_turn(NOW + 2, [A]) == {A}


@pytest.mark.parametrize(
    ("here", "wishes", "has_hp", "seconds"),
    [
        pytest.param([present()], Wishes(), False, REST_SECONDS, id="all are here"),
        pytest.param(
            [present(Place.LEAVING, rests=False)], Wishes(leave=("one",)), False, LOOK_SECONDS, id="one moves"
        ),
        pytest.param([present(rests=False)], Wishes(), False, LOOK_SECONDS, id="one has refused"),
        pytest.param([present()], Wishes(stuck=frozenset({"one"})), False, LOOK_SECONDS, id="one cannot come back"),
        pytest.param([present(), present(Place.AWAY)], Wishes(), False, REST_SECONDS, id="one is away for good"),
    ],
)
def test_the_next_decision(here: list[Any], wishes: Wishes, has_hp: bool, seconds: float) -> None:
    seen = view(1, tenant("here", Place.HERE, 1), now=NOW)
    assert next_decision(seen, wishes, here, {A: card(has_hp=has_hp)}) == NOW + seconds


def test_who_waits_for_room_causes_no_look_at_all_gpus() -> None:
    waking = Waking()
    waking.look_soon(for_hp=True)
    assert not waking.begin()
    waking.wake()
    waking.look_soon()
    assert waking.begin()
    assert not waking.begin()
