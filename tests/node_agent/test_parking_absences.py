"""Nobody is away for hours in one piece, whatever has happened for hours before: each case takes turns afterwards."""

from dataclasses import replace

from orion.node_agent.parking.view import Place
from orion.planning.sharing import due
from tests.node_agent.parking_views import GIB
from tests.node_agent.test_parking_over_time import Card

HOUR = 3_600
""" In steps of a second. """


def weights(*requests: float) -> tuple[float, ...]:
    return tuple(due.requests({str(number): due.Claim(each) for number, each in enumerate(requests)}).values())


def longest_absence(card: Card, name: str, steps: int) -> float:
    """Return for how long a tenant is away at most, with its ways."""
    away = longest = 0.0
    for _ in range(steps):
        card.step(1.0)
        away = 0.0 if card.tenants[name].place is Place.HERE else away + 1.0
        longest = max(longest, away)
    return longest


def test_after_a_person_had_one_away_for_an_hour_the_other_is_not_away_for_an_hour() -> None:
    card = Card(8, 8, 8)
    usual = longest_absence(card, "t1", HOUR)
    card.tenants["t0"] = replace(card.tenants["t0"], is_wished_away=True)
    longest_absence(card, "t1", HOUR)
    card.tenants["t0"] = replace(card.tenants["t0"], is_wished_away=False)
    assert longest_absence(card, "t1", HOUR) <= 1.2 * usual


def test_a_request_that_is_lowered_counts_for_the_time_from_then_on() -> None:
    card = Card(8, 8, 8, weights=weights(0.5, 0.5))
    longest_absence(card, "t1", HOUR)
    before = dict(card.here)
    card.weigh(*(then := weights(0.5, 0.1)))
    stay = 20 * 4.0
    assert longest_absence(card, "t1", 2 * HOUR) <= 1.5 * stay * then[0] / then[1]
    had = [card.here[name] - before[name] for name in card.tenants]
    assert 0.8 * then[0] / then[1] <= had[0] / had[1] <= 1.2 * then[0] / then[1]


def test_who_arrives_takes_no_hours_from_one_that_is_due_less_from_then_on() -> None:
    card = Card(8, 8, 8, weights=weights(0.5, 0))
    longest_absence(card, "t1", HOUR)
    card.arrives("t2", 8)
    card.weigh(*weights(0.5, 0, 0))
    assert max(longest_absence(card, name, HOUR) for name in ("t1", "t2")) <= 1200


def test_who_had_no_room_beside_hp_for_hours_does_not_have_the_gpu_for_hours() -> None:
    card = Card(20, 16, 8, 8)
    card.hp = 12 * GIB  # only one of the small ones fits
    longest_absence(card, "t0", HOUR)
    card.hp = 0
    assert longest_absence(card, "t1", HOUR) <= 600
