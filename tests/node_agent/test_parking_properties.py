"""What holds of who leaves and who comes back, whatever is seen."""

from hypothesis import given, settings
from hypothesis import strategies as st

from orion.node_agent.parking.deciding import decide
from orion.node_agent.parking.keeping_room import who_keep_room
from orion.node_agent.parking.view import Place, Room, Tenant, View
from tests.node_agent.parking_views import GIB, A, B

PLACES = ("/pods", "the node")
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
        clock=draw(st.floats(0, 1000)),
        change_seconds=draw(st.floats(0, 60)),
        came=draw(st.just(float("-inf")) | st.floats(0, 1000)),
        refused_until=draw(st.sampled_from([-1.0, 1e9])),
        charged={place: draw(AMOUNTS) for place in PLACES if draw(st.booleans())},
    )


RATES = st.just(0.0) | st.floats(0, 2 * GIB)
MOST = st.just(0) | AMOUNTS
CARDS = st.builds(
    Room, st.none() | AMOUNTS, *[AMOUNTS] * 5, rate=RATES, most=MOST, has_hp=st.booleans(), promised=MOST, owed=MOST
)
VIEWS = st.builds(
    View,
    now=st.floats(1000, 2000),
    cards=st.fixed_dictionaries({A: CARDS, B: CARDS}),
    tenants=st.lists(tenants(), max_size=7, unique_by=lambda each: each.name).map(tuple),
    host=st.fixed_dictionaries(dict.fromkeys(PLACES, AMOUNTS)),
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
        cards = [seen.cards[gpu] for gpu in leaving.gpus]
        waits = any(card.wished or card.owed or card.rate for card in cards)
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
            is_alone = len(wishes.back) == 1 and not room.hp_may_grow and not _others(seen, gpu)
            owed = 0 if gpu in wishes.unpayable else room.owed
            kept = room.reserve + room.kept + room.promised + owed + (0 if is_alone else room.margin)
            assert back + coming + kept <= room.free
    assert decide(seen) == wishes


@settings(max_examples=300, deadline=None)
@given(VIEWS)
def test_nobody_leaves_for_host_memory_that_is_not_there(seen: View) -> None:
    wishes = decide(seen)
    leaving = [each for each in seen.tenants if each.place is Place.LEAVING or each.name in wishes.leave]
    for place, left in seen.host.items():
        if any(place in each.charged for each in leaving if each.name in wishes.leave):
            assert sum(each.charged.get(place, 0) for each in leaving) <= left
    assert not [each.name for each in seen.tenants if each.name in wishes.leave and seen.lacks_host_memory(each)]


@settings(max_examples=300, deadline=None)
@given(VIEWS)
def test_only_who_refuses_and_would_make_room_keeps_it(seen: View) -> None:
    refusing = {each.name for each in seen.tenants if each.refused_until > seen.now}
    kept = who_keep_room(seen, decide(seen), refusing)
    named = {each.name: each for each in seen.tenants}
    for name in kept:
        assert name in refusing
        assert named[name].place is Place.HERE
        assert named[name].parks
        assert not named[name].is_wished_away
        assert any(named[name].held.values())


def _others(seen: View, gpu: str) -> list[str]:
    """Return who is on a GPU, or moves there."""
    return [each.name for each in seen.tenants if each.place is not Place.AWAY and gpu in each.gpus]
