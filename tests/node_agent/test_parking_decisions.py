"""Who leaves the memory of a GPU, and who comes back: rules that hold for all views, and cases of each rule."""

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion.node_agent.parking.deciding import decide
from orion.node_agent.parking.reserve import Reserve
from orion.node_agent.parking.view import Place, Room, Tenant, View, Wishes

GIB = 1 << 30
A, B = "GPU-a", "GPU-b"
FACTOR = 20.0


def tenant(name: str, place: Place, held: float, **fields: object) -> Tenant:
    return Tenant(name, place, since=0.0, held={A: round(held * GIB)}, **fields)  # type: ignore[arg-type]


def view(free: float, *tenants: Tenant, now: float = 1000.0, **room: float) -> View:
    amounts = {name: round(value * GIB) for name, value in room.items()}
    return View(now, {A: Room(round(free * GIB), **amounts)}, tenants, FACTOR)


def test_nothing_happens_while_there_is_room() -> None:
    assert decide(view(4, tenant("a", Place.HERE, 8), reserve=1)) == Wishes()


def test_the_smallest_that_suffices_leaves_for_hp() -> None:
    here = [tenant("small", Place.HERE, 1), tenant("middle", Place.HERE, 3), tenant("large", Place.HERE, 9)]
    assert decide(view(0.5, *here, wished=2.5)).leave == ("middle",)
    assert decide(view(0.5, *here, wished=11)).leave == ("large", "middle")


def test_nobody_leaves_for_what_cannot_be() -> None:
    found = decide(view(1, tenant("a", Place.HERE, 3), wished=5))
    assert found == Wishes(hopeless=frozenset({A}))


def test_nobody_leaves_for_hp_while_the_driver_does_not_say_what_is_free() -> None:
    here = tenant("a", Place.HERE, 3)
    unknown = View(1000.0, {A: Room(None, reserve=GIB, wished=GIB)}, (here,), FACTOR)
    assert decide(unknown) == Wishes()
    assert decide(replace(unknown, tenants=(replace(here, is_wished_away=True),))).leave == ("a",)


def test_room_that_is_already_being_made_is_not_made_twice() -> None:
    assert decide(view(0, tenant("a", Place.LEAVING, 3), tenant("b", Place.HERE, 3), wished=2)).leave == ()


def test_nobody_leaves_for_what_hp_has_been_given_and_may_have_taken() -> None:
    here = tenant("a", Place.HERE, 3)
    assert decide(view(1, here, reserve=1, kept=2)) == Wishes()
    assert decide(view(0, here, wished=2, kept=2)) == Wishes(leave=("a",))


def test_who_has_just_returned_leaves_for_hp_that_waits_but_not_for_the_reserve() -> None:
    returned = tenant("a", Place.HERE, 3, has_returned=True, change_seconds=100)
    assert decide(view(0, returned, reserve=1)).leave == ()
    assert decide(view(0, returned, wished=1)).leave == ("a",)
    assert decide(view(0, replace(returned, change_seconds=1), reserve=1)).leave == ("a",)


def test_who_has_just_returned_leaves_for_the_reserve_if_hp_will_need_the_room_before_it_has_stayed() -> None:
    returned = tenant("a", Place.HERE, 3, has_returned=True, change_seconds=100)  # it has 1,000 s left of its stay
    assert decide(view(1, returned, reserve=2, rate=0.002)).leave == ("a",)
    assert decide(view(1, returned, reserve=2, rate=0.0005)).leave == ()
    assert decide(view(2, returned, reserve=2, rate=1)).leave == (), "there is enough until somebody has left"


def test_nobody_comes_back_to_room_that_hp_will_need_before_it_has_stayed() -> None:
    away = tenant("away", Place.AWAY, 4, change_seconds=1)
    assert decide(view(8.9, away, rate=0.25, most=80)).back == ()
    assert decide(view(9, away, rate=0.25, most=80)).back == ("away",)
    assert decide(view(5, away, rate=0.25, most=1)).back == ("away",), "hp may take no more"


def test_what_is_restored_is_not_counted_twice() -> None:
    returns = tenant("returns", Place.RETURNING, 4, coming={A: 4 * GIB})
    stays = tenant("stays", Place.HERE, 3)
    assert decide(view(2, returns, stays, reserve=2)).leave == ("stays",)
    assert decide(view(2, returns, stays, reserve=2, restored=4)).leave == ()
    assert decide(view(2, returns, stays, reserve=2, restored=9)).leave == (), "no more than what comes"


def test_who_had_to_leave_early_comes_back_when_its_stay_would_be_over() -> None:
    away = tenant("away", Place.AWAY, 4, came=900.0, change_seconds=6)
    assert decide(view(9, away)).back == ()
    assert decide(view(9, replace(away, is_half=True))).back == ("away",)
    assert decide(view(9, away, now=1020.0)).back == ("away",)


def test_who_comes_back_needs_room_beside_reserve_margin_and_growth() -> None:
    away = tenant("away", Place.AWAY, 4)
    assert decide(view(6, away, reserve=1, margin=1)).back == ("away",)
    assert decide(view(5.9, away, reserve=1, margin=1)).back == ()
    growing = tenant("here", Place.HERE, 1, wants={A: 2 * GIB})
    assert decide(view(6, away, growing, reserve=1, margin=1)).back == ()
    assert decide(view(7, away, growing, reserve=1, margin=1)).back == ("away",)


def test_room_of_one_that_returns_is_not_given_to_another() -> None:
    returning = tenant("returning", Place.RETURNING, 4, coming={A: 4 * GIB})
    away = tenant("away", Place.AWAY, 3)
    assert decide(view(6, returning, away)).back == ()
    assert decide(view(6, replace(returning, coming={A: 0}), away)).back == ("away",)


def test_room_that_one_may_take_once_it_has_returned_is_not_given_to_another() -> None:
    returning = tenant("returning", Place.RETURNING, 1, coming={A: 0}, wants={A: 4 * GIB})
    away = tenant("away", Place.AWAY, 3)
    assert decide(view(5.9, returning, away)).back == ()
    assert decide(view(6, returning, away)).back == ("away",)


def test_a_new_one_does_not_take_what_others_are_about_to_leave() -> None:
    leaving, waits = tenant("leaving", Place.LEAVING, 8), tenant("waits", Place.AWAY, 8)
    new = tenant("new", Place.HERE, 0.3, wants={A: 8 * GIB}, is_new=True)
    here = tenant("here", Place.HERE, 8)
    assert decide(view(1, leaving, waits, here, new)).leave == ("new",)
    assert decide(view(9, leaving, here, new)).leave == ()
    returning = tenant("returning", Place.RETURNING, 0.3, coming={A: 0}, wants={A: 8 * GIB})
    assert decide(view(9, returning, here, new)).leave == ("new",)


def test_who_has_had_least_of_what_it_is_due_comes_back_first() -> None:
    had_much = tenant("much", Place.AWAY, 4, stayed=100.0, weight=0.9)
    had_little = tenant("little", Place.AWAY, 4, stayed=50.0, weight=0.1)
    assert decide(view(5, had_much, had_little)).back == ("much",)  # 111 s of its due against 500 s


def test_who_finds_no_room_waits_for_its_turn() -> None:
    cramped = tenant("cramped", Place.HERE, 5, lacks={A: 2 * GIB}, stayed=1.0)
    other = tenant("other", Place.HERE, 4, change_seconds=1e3)
    assert decide(view(1, cramped, other)).leave == ("cramped",)
    assert decide(view(2, cramped, other)) == Wishes(), "the room is there"
    assert decide(view(1, cramped, tenant("leaving", Place.LEAVING, 1))) == Wishes(), "the room is coming"
    assert decide(view(1, cramped)).helpless == {"cramped"}, "nobody else can leave"
    assert decide(view(1, replace(cramped, refused_until=1e9), other)).helpless == {"cramped"}
    second = replace(cramped, name="second", stayed=2.0)
    assert decide(view(1, cramped, second, other)).leave == ("second",), "what it leaves is enough for the first"


def test_who_found_no_room_comes_back_with_room_for_it_or_without_if_that_can_never_be() -> None:
    away, other = tenant("away", Place.AWAY, 5, lacks={A: 2 * GIB}), tenant("other", Place.HERE, 2, change_seconds=1e3)
    assert decide(view(4, away, other)).back == ()
    assert decide(view(5, away, other)).back == ("away",)
    assert decide(view(4, away)).back == ("away",)


def test_the_next_takes_the_place_of_one_that_has_stayed() -> None:
    away = tenant("away", Place.AWAY, 4)
    here = tenant("here", Place.HERE, 4, stayed=60.0, change_seconds=3.0)
    assert decide(view(0, away, here, now=59.0)).leave == ()
    assert decide(view(0, away, here, now=60.0)).leave == ("here",)
    assert decide(view(0, away, replace(here, stayed=0.0), now=60.0)).leave == ()


def test_a_small_one_does_not_overtake_a_large_one_whose_turn_it_is() -> None:
    large = tenant("large", Place.AWAY, 8)
    small = tenant("small", Place.AWAY, 1, stayed=5.0)
    here = tenant("here", Place.HERE, 7, stayed=9.0, change_seconds=1e3)
    assert decide(view(2, large, small, here)).back == ()
    never = replace(large, held={A: 80 * GIB})
    assert decide(view(2, never, small, here)).back == ("small",)


def test_the_newest_leaves_if_all_may_need_more_than_there_is() -> None:
    first = tenant("first", Place.HERE, 2, wants={A: 6 * GIB}, is_new=True)
    second = replace(first, name="second", since=5.0, held={A: GIB // 2})
    assert decide(view(5.5, first)).leave == ()
    assert decide(view(5.5, first, second)).leave == ("second",)
    assert decide(view(9.6, first, second)).leave == ()
    assert decide(view(1, first)).leave == (), "nobody else is here that could leave for it"


def test_one_whose_limit_is_more_than_there_can_be_comes_back_with_what_it_held() -> None:
    away = tenant("away", Place.AWAY, 1, wants={A: 100 * GIB})
    assert decide(view(2, away)).back == ("away",)


def test_a_person_decides() -> None:
    assert decide(view(9, tenant("a", Place.HERE, 1, is_wished_away=True))).leave == ("a",)
    assert decide(view(9, tenant("a", Place.AWAY, 1, is_wished_away=True))).back == ()


def test_all_gpus_of_a_tenant_need_room() -> None:
    away = Tenant("job", Place.AWAY, 0.0, {A: 4 * GIB, B: 4 * GIB})
    cards = {A: Room(5 * GIB), B: Room(3 * GIB)}
    assert decide(View(0, cards, (away,))).back == ()
    assert decide(View(0, {**cards, B: Room(4 * GIB)}, (away,))).back == ("job",)
    assert decide(View(0, {**cards, B: Room(None)}, (away,))).back == ()


AMOUNTS = st.integers(0, 16).map(lambda gib: gib * GIB)


@st.composite
def tenants(draw: st.DrawFn) -> Tenant:
    gpus = draw(st.sampled_from([(A,), (B,), (A, B)]))
    return Tenant(
        name=str(draw(st.integers(0, 10**9))),
        place=draw(st.sampled_from(Place)),
        since=draw(st.floats(0, 1000)),
        held=(held := {gpu: draw(AMOUNTS) for gpu in gpus}),
        lacks={gpu: draw(st.integers(0, amount)) for gpu, amount in held.items() if draw(st.booleans())},
        wants={gpu: draw(AMOUNTS) for gpu in gpus},
        parks=draw(st.booleans()),
        is_hp=draw(st.booleans()),
        has_returned=draw(st.booleans()),
        is_new=draw(st.booleans()),
        is_half=draw(st.booleans()),
        is_wished_away=draw(st.booleans()),
        weight=draw(st.floats(0.001, 1)),
        stayed=draw(st.floats(0, 1000)),
        change_seconds=draw(st.floats(0, 60)),
        came=draw(st.just(float("-inf")) | st.floats(0, 1000)),
        refused_until=draw(st.sampled_from([-1.0, 1e9])),
    )


RATES = st.just(0.0) | st.floats(0, 2 * GIB)
CARDS = st.builds(Room, st.none() | AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, RATES, AMOUNTS)
VIEWS = st.builds(
    View,
    now=st.floats(1000, 2000),
    cards=st.fixed_dictionaries({A: CARDS, B: CARDS}),
    tenants=st.lists(tenants(), max_size=7, unique_by=lambda each: each.name).map(tuple),
)


@settings(max_examples=600, deadline=None)
@given(VIEWS)
def test_what_holds_for_every_view(seen: View) -> None:
    wishes, named = decide(seen), {each.name: each for each in seen.tenants}
    for name in wishes.leave:
        leaving = named[name]
        assert leaving.place is Place.HERE
        assert leaving.parks
        assert not leaving.is_hp
        assert seen.now >= leaving.refused_until
        stayed = seen.now - leaving.since >= seen.stay_factor * leaving.change_seconds
        waits = any(seen.cards[gpu].wished or seen.cards[gpu].rate for gpu in leaving.gpus)
        assert not leaving.has_returned or stayed or waits or leaving.is_wished_away or leaving.is_new
        assert leaving.is_wished_away or any(seen.cards[gpu].free is not None for gpu in seen.cards)
    for name in wishes.back:
        assert named[name].place is Place.AWAY
        assert not named[name].is_wished_away
        assert named[name].is_half or seen.now - named[name].came >= seen.stay_factor * named[name].change_seconds
    assert len({*wishes.leave, *wishes.back}) == len(wishes.leave) + len(wishes.back)
    for gpu, room in seen.cards.items():
        back = sum(named[name].frees(gpu) for name in wishes.back)
        coming = sum(each.held.get(gpu, 0) for each in seen.tenants if each.place is Place.RETURNING)
        if back:
            assert room.free is not None
            assert back + coming + room.reserve + room.margin + room.kept <= room.free
    assert decide(seen) == wishes


class Card:
    """A GPU whose tenants move as they shall, each change in `CHANGE` seconds."""

    CHANGE = 2.0

    def __init__(self, size: float, *held: float, weights: tuple[float, ...] = ()) -> None:
        self.size, self.now = round(size * GIB), 0.0
        self.hp, self.wished = 0, 0
        self.learnt, self.most = Reserve(GIB // 2), 0
        self.here: defaultdict[str, float] = defaultdict(float)
        self.moved: list[tuple[float, str, Place]] = []
        self.tenants = {
            f"t{i}": tenant(f"t{i}", Place.AWAY, each, weight=weights[i] if weights else 1.0, change_seconds=4.0)
            for i, each in enumerate(held)
        }

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

    def step(self, seconds: float) -> None:
        self.now += seconds
        for name, each in self.tenants.items():
            done = self.now - each.since >= self.CHANGE
            if done and each.place in (Place.LEAVING, Place.RETURNING):
                self.move(name, Place.AWAY if each.place is Place.LEAVING else Place.HERE)
            elif each.place is Place.HERE:
                self.here[name] += seconds
                waits = any(other.place is Place.AWAY for other in self.tenants.values())
                self.tenants[name] = replace(each, stayed=each.stayed + seconds * waits)
        # What returns has taken its memory in this model at once, so nothing of it is still to come.
        seen = tuple(replace(each, coming={A: 0}) for each in self.tenants.values())
        wishes = decide(View(self.now, {A: self.room()}, seen, FACTOR))
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
