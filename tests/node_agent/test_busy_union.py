"""When hp clients were busy, by what they write, and the union of those times: properties of any values."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.hook import layout
from orion.node_agent.pages.busy_periods import BusyPeriods, PeriodWords
from orion.node_agent.sharing.busy_union import Busy, union_ns

Period = tuple[int, int]
SINCE, NOW = 1_000, 1_100
MOST = layout.BUSY_PERIODS


@st.composite
def histories(draw: st.DrawFn, most: int = 2 * MOST) -> list[Period]:
    """Draw periods that follow one another, the last of which may end after NOW."""
    steps = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=most))
    history, at = [], draw(st.integers(1, NOW))
    for pause, lasted in steps:
        history.append((at + pause, at + pause + lasted))
        at += pause + lasted
    return history


def words(history: Sequence[Period], open_ns: int = 0, behind: int = 0) -> PeriodWords:
    """Return what a reader finds that is interrupted after reading the count, while so many periods are written."""
    ring = [0] * (2 * MOST)
    for number, period in enumerate(history):
        ring[number % MOST * 2 : number % MOST * 2 + 2] = period
    return PeriodWords(open_ns, max(0, len(history) - behind), ring, len(history))


def ticks(periods: Sequence[Period], since: int = SINCE, now: int = NOW) -> set[int]:
    return {at for begin, end in periods for at in range(max(begin, since), min(end, now))}


def is_descending(periods: Sequence[Period], since: int, now: int) -> bool:
    edges = [now, *(edge for begin, end in periods for edge in (end, begin)), since]
    return edges == sorted(edges, reverse=True)


@given(histories(), st.integers(0, 20), st.booleans(), st.integers(1, MOST))
def test_what_is_found_is_all_there_was_since_then(
    history: list[Period], behind: int, is_open: bool, most: int
) -> None:
    open_ns = history[-1][1] if is_open and history else 0
    found = words(history, open_ns, behind).between(SINCE, NOW, most)
    counted = history[: max(0, len(history) - behind)]
    there = ticks([*counted, (open_ns, NOW)] if open_ns > 0 else counted, since=max(SINCE, found.since_ns))
    assert ticks(found.periods) == there
    assert is_descending(found.periods, SINCE, NOW)
    if most == MOST and len(history) < MOST:
        assert found.since_ns <= SINCE


def test_an_earlier_hook_shows_no_periods_but_the_open_one() -> None:
    nothing = [0] * (2 * MOST)
    assert PeriodWords(0, 7, nothing, 7).between(SINCE, NOW, MOST) == BusyPeriods(NOW)
    assert PeriodWords(NOW - 9, 7, nothing, 7).between(SINCE, NOW, MOST) == BusyPeriods(NOW - 9, ((NOW - 9, NOW),))


def test_a_period_that_is_half_overwritten_ends_the_search() -> None:
    """The reader finds a new begin or a new end where an old period was."""
    history = [(at, at + 1) for at in range(SINCE - 200, NOW, 2)]
    for torn in ((NOW + 1, history[-9][1]), (history[-9][0], NOW + 1)):
        found = words([*history[:-9], torn, *history[-8:]]).between(SINCE, NOW, MOST)
        assert found == BusyPeriods(history[-8][0], tuple(reversed(history[-8:])))


ANY = st.one_of(st.integers(0, 2**64 - 1), st.integers(SINCE - 20, NOW + 20))


@given(ANY, ANY, st.lists(ANY, min_size=1, max_size=12), ANY, st.integers(1, MOST))
def test_whatever_a_client_writes_its_periods_do_not_overlap(
    open_ns: int, count: int, some: list[int], later: int, most: int
) -> None:
    ring = (some * (2 * MOST))[: 2 * MOST]
    found = PeriodWords(open_ns, count, ring, later).between(SINCE, NOW, most)
    assert is_descending(found.periods, SINCE, NOW)
    assert SINCE <= found.since_ns <= NOW


@st.composite
def busy(draw: st.DrawFn) -> Busy:
    """Draw any result of reading a client's page, with any sum of busy periods."""
    edges = sorted(draw(st.lists(st.integers(SINCE, NOW), max_size=8)), reverse=True)
    periods = tuple(zip(edges[1::2], edges[::2], strict=False))
    since = draw(st.integers(SINCE, periods[-1][0] if periods else NOW))
    return Busy(draw(st.one_of(st.integers(1, NOW - SINCE), ANY)), BusyPeriods(since, periods))


SLOTS = st.lists(st.lists(busy(), min_size=1, max_size=4), max_size=4)


@given(st.lists(histories(most=20), min_size=1, max_size=5), st.data())
def test_the_union_is_the_time_in_which_at_least_one_was_busy(many: list[list[Period]], data: st.DataObject) -> None:
    clients = [Busy(len(ticks(each)), words(each).between(SINCE, NOW, MOST)) for each in many]
    at = data.draw(st.integers(0, len(clients) - 1))
    slots = [each for each in (clients[:at], clients[at:]) if each]
    assert union_ns(slots, SINCE, NOW) == len(set[int]().union(*map(ticks, many)))


@given(SLOTS)
def test_the_union_is_at_least_the_most_of_one_client_and_at_most_the_time(slots: list[list[Busy]]) -> None:
    most = max((each.busy_ns for clients in slots for each in clients), default=0)
    assert min(most, NOW - SINCE) <= union_ns(slots, SINCE, NOW) <= NOW - SINCE


@given(SLOTS, st.lists(busy(), min_size=1, max_size=4))
def test_whatever_the_clients_of_a_slot_say_others_do_not_seem_to_be_busy_for_less(
    slots: list[list[Busy]], more: list[Busy]
) -> None:
    without = union_ns(slots, SINCE, NOW)
    assert without - 1 <= union_ns([*slots, more], SINCE, NOW) <= NOW - SINCE  # rounding may take 1 ns


def test_no_time_has_passed() -> None:
    assert union_ns([[Busy(5, BusyPeriods(NOW))] * 2], NOW, NOW) == 0


@pytest.mark.parametrize("same_slot", [True, False])
def test_a_sample_is_for_the_clients_of_its_slot_alone(same_slot: bool) -> None:
    """Else a client of another slot could make two that are busy at the same times look like one, or like two."""
    clients = [Busy(50, BusyPeriods(NOW - 10, ((NOW - 10, NOW - 5),)))] * 2
    slots = [clients] if same_slot else [clients[:1], clients[1:]]
    assert union_ns(slots, SINCE, NOW) == (50 if same_slot else 75)
