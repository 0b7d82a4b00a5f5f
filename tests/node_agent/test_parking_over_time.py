"""Tenants that come and go on one GPU for hours: equal parts for all, and nobody who has just returned leaves."""

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion.node_agent.parking import known
from orion.node_agent.parking.clocks import clocks
from orion.node_agent.parking.deciding import decide
from orion.node_agent.parking.known import PEAK_SECONDS, YOUNG_SECONDS, Known
from orion.node_agent.parking.reserve import Reserve
from orion.node_agent.parking.view import Place, Room, View
from tests.node_agent.parking_views import FACTOR, GIB, A, tenant


class Card:
    """A GPU whose tenants move as they shall, each change in `CHANGE` seconds."""

    CHANGE = 2.0

    def __init__(self, size: float, *held: float, weights: tuple[float, ...] = ()) -> None:
        self.size, self.now = round(size * GIB), 0.0
        self.hp, self.wished = 0, 0
        self.host = 1000 * GIB
        """ What those who are away may have in host memory. """
        self.learnt, self.most = Reserve(GIB // 2), 0
        self.here: defaultdict[str, float] = defaultdict(float)
        self.moved: list[tuple[float, str, Place]] = []
        # What returns has taken its memory in this model at once, so nothing of it is still to come.
        away = [
            tenant(f"t{i}", Place.AWAY, each, weight=weights[i] if weights else 1.0, change_seconds=4.0, coming={A: 0})
            for i, each in enumerate(held)
        ]
        self.tenants = {each.name: replace(each, charged=each.held) for each in away}

    def free(self) -> int:
        held = sum(each.held[A] for each in self.tenants.values() if each.place is not Place.AWAY)
        return self.size - self.hp - held

    def room(self) -> Room:
        if not self.most:
            return Room(self.free(), wished=self.wished)
        most = self.most - self.hp
        reserve = self.learnt.look(self.now, self.hp, most, self.CHANGE)
        return Room(self.free(), reserve, GIB // 4, self.wished, rate=self.learnt.rate, most=most)

    def serve(self, wanted: int) -> int:
        """Let hp hold so much, or as much as there is; return what it lacks."""
        self.hp = min(wanted, self.hp + self.free())
        self.wished = wanted - self.hp
        return self.wished

    def move(self, name: str, place: Place) -> None:
        self.moved.append((self.now, name, place))
        back = place is Place.HERE
        changed = replace(self.tenants[name], place=place, since=self.now)
        self.tenants[name] = replace(changed, has_returned=True, came=self.now) if back else changed

    def weigh(self, *weights: float) -> None:
        for weight, (name, each) in zip(weights, self.tenants.items(), strict=True):
            self.tenants[name] = replace(each, weight=weight)

    def arrives(self, name: str, held: float) -> None:
        of_name = tenant(name, Place.AWAY, held, change_seconds=4.0, coming={A: 0})
        self.tenants[name] = replace(of_name, charged=of_name.held, since=self.now, clock=float("-inf"))

    def step(self, seconds: float) -> None:
        self.now += seconds
        here = dict[str, float]()
        for name, each in self.tenants.items():
            done = self.now - each.since >= self.CHANGE
            if done and each.place in (Place.LEAVING, Place.RETURNING):
                self.move(name, Place.AWAY if each.place is Place.LEAVING else Place.HERE)
            elif each.place is Place.HERE:
                self.here[name] += seconds
                here[name] = seconds
        read = clocks(self.tenants.values(), here, FACTOR)
        for name, each in self.tenants.items():
            if each.clock != read[name]:  # most clocks stand still, and a new tenant costs as much as a decision
                self.tenants[name] = replace(each, clock=read[name])
        seen = tuple(self.tenants.values())
        away = sum(each.held[A] for each in seen if each.place in (Place.AWAY, Place.RETURNING))
        wishes = decide(View(self.now, {A: self.room()}, seen, FACTOR, host={A: self.host - away}))
        for name in wishes.leave:
            self.move(name, Place.LEAVING)
        for name in wishes.back:
            self.move(name, Place.RETURNING)
        assert self.free() >= 0


def test_nine_tenants_where_three_fit_have_equal_parts_of_the_card() -> None:
    card = Card(28, *[8] * 9)
    for _ in range(18_000):
        card.step(0.5)
    stays = [card.here[name] for name in card.tenants]
    assert max(stays) <= 1.2 * min(stays), stays
    assert sum(stays) >= 0.9 * 3 * card.now


def test_tenants_of_different_requests_have_parts_by_them() -> None:
    card = Card(8, 8, 8, weights=(0.75, 0.25))
    for _ in range(40_000):
        card.step(0.5)
    assert card.here["t0"] / card.here["t1"] == pytest.approx(3, rel=0.15)


def test_small_ones_come_and_go_until_host_memory_lets_the_large_one_in() -> None:
    card = Card(80, 40, 30, 70, 5, 5, 5)
    card.host = 130 * GIB  # with the large one and one small one away, either of the two others can leave
    for _ in range(4_000):
        card.step(0.5)
    assert card.here["t2"] == 0
    assert min(card.here[f"t{i}"] for i in (3, 4, 5)) > 500
    card.host = 160 * GIB
    for _ in range(400):
        card.step(0.5)
    assert card.here["t2"] > 0


@pytest.mark.parametrize("pause", [5, 20, 45, 90])
def test_hp_that_grows_again_finds_room_although_tenants_have_just_returned(pause: int) -> None:
    """hp's cache grows by 1 GiB a second for 20 s on a full card, and is freed."""
    card = Card(32, *[4.4] * 6)
    card.most = 25 * GIB
    card.hp = 4 * GIB
    for _ in range(4_000):
        card.step(0.05)
    for round_ in range(6):
        waits = 0
        for step in range(1, 401):
            waits += card.serve(4 * GIB + step * GIB // 20) > 0
            card.step(0.05)
        assert round_ == 0 or not waits, f"round {round_}: hp waited in {waits} of 400 steps"
        card.serve(4 * GIB)
        for _ in range(pause * 20):
            card.step(0.05)
    _assert_nobody_comes_and_goes(card)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(1, 10), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 18), st.integers(1, 40)), min_size=1, max_size=20),
)
def test_nobody_comes_and_goes_however_hp_grows_and_shrinks(held: list[int], hp: list[tuple[int, int]]) -> None:
    card = Card(20, *held)
    card.most = 20 * GIB
    for amount, steps in hp:
        begun = card.hp
        for step in range(1, steps + 1):
            card.serve(begun + (amount * GIB - begun) * step // steps)
            card.step(0.5)
    _assert_nobody_comes_and_goes(card)


def _assert_nobody_comes_and_goes(card: Card) -> None:
    """Assert that nobody comes back sooner after its last return than it should have stayed."""
    last: dict[str, float] = {}
    for when, name, place in card.moved:
        if place is Place.RETURNING and name in last:
            assert when - last[name] >= FACTOR * 4.0
        elif place is Place.HERE:
            last[name] = when


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=7), st.lists(st.integers(0, 18), max_size=12))
def test_nobody_is_away_for_ever_and_nobody_comes_and_goes(held: list[int], hp: list[int]) -> None:
    card = Card(20, *held)
    for amount in [*hp, 0]:
        card.hp = min(amount * GIB, card.hp + card.free())  # hp takes what is free
        card.wished = max(0, amount * GIB - card.hp)
        for _ in range(40):
            card.step(0.5)
        card.hp, card.wished = min(amount * GIB, card.hp + card.free()), 0
    before = dict(card.here)
    for _ in range(round(2 * 100 * len(held) / 0.5)):
        card.step(0.5)
    assert all(card.here[name] > before.get(name, 0.0) for name in card.tenants)
    last: dict[str, float] = {}
    for when, name, place in card.moved:
        if place is Place.HERE:
            last[name] = when
        elif place is Place.LEAVING and name in last and last[name] > 20 * (len(hp) + 1):
            assert when - last[name] >= FACTOR * 4.0


class Spiky(Card):
    """Two tenants of 4 GiB on a GPU of 10 GiB. Each holds 8 GiB for a moment, after so many seconds on the GPU."""

    def __init__(self, *spikes: range) -> None:
        super().__init__(10, *[4] * len(spikes))
        self.spikes = dict(zip(self.tenants, spikes, strict=True))
        self.known = {name: Known(0.0, here_seconds=YOUNG_SECONDS) for name in self.tenants}

    def free(self) -> int:
        return self.size - sum(each.frees(A) for each in self.tenants.values() if each.place is not Place.AWAY)

    def step(self, seconds: float) -> None:
        for name, each in self.tenants.items():
            if each.place is Place.HERE:
                self._hold(name, seconds)
            elif each.place is Place.AWAY:
                self.tenants[name] = replace(each, lacks={})
        super().step(seconds)

    def _hold(self, name: str, seconds: float) -> None:
        each, of_name = self.tenants[name], self.known[name]
        of_name.here_seconds += seconds
        here = of_name.here_seconds - YOUNG_SECONDS
        is_high = any(begin <= here < begin + 20 for begin in self.spikes[name])
        held = (8 if is_high else 4) * GIB
        lacks = max(0, held - each.frees(A) - self.free())
        of_name.note_held({A: held})
        self.tenants[name] = replace(each, held={A: held}, lacks={A: lacks}, wants=dict(of_name.peak))

    def run(self, seconds: float) -> int:
        """Return how often somebody left."""
        before = len(self.moved)
        for _ in range(round(seconds)):
            self.step(1.0)
        return sum(place is Place.LEAVING for _, _, place in self.moved[before:])


def test_tenants_that_did_not_fit_together_once_do_not_take_turns_for_ever() -> None:
    card = Spiky(range(20, 21), range(20, 21))
    assert card.run(PEAK_SECONDS) > 5
    card.run(5 * PEAK_SECONDS)
    assert card.run(3600) == 0
    assert {each.place for each in card.tenants.values()} == {Place.HERE}


@pytest.mark.parametrize("every", [60, 700, 1500])
def test_tenants_that_do_not_fit_together_at_times_move_no_more_often_than_in_turns(
    every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spikes = range(20, 20_000, every)
    often = Spiky(spikes, spikes).run(10_000)
    monkeypatch.setattr(known, "PEAK_SECONDS", float("inf"))
    assert 0 < often <= 1.05 * Spiky(spikes, spikes).run(10_000)
