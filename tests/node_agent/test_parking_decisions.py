"""Who leaves the memory of a GPU, and who comes back: cases of each rule."""

from dataclasses import replace

from orion.node_agent.parking.deciding import decide
from orion.node_agent.parking.view import Place, Room, Tenant, View, Wishes
from tests.node_agent.parking_views import FACTOR, GIB, A, B, tenant, view


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


def test_nobody_is_refused_what_processes_that_have_just_ended_may_still_hold() -> None:
    here, away = tenant("a", Place.HERE, 3), tenant("away", Place.AWAY, 1)
    assert decide(view(1, here, wished=5, ending=1)) == Wishes()
    assert decide(view(1, here, away, wished=5, ending=1)).back == ()
    assert decide(view(1, here, wished=5, ending=0.5)).hopeless == {A}
    assert decide(view(1, here, owed=5, ending=1)) == Wishes()
    assert decide(view(1, here, owed=5, ending=0.5)).unpayable == {A}
    cramped = tenant("cramped", Place.HERE, 5, lacks={A: 3 * GIB})
    assert decide(view(1, cramped, ending=2)) == Wishes()
    assert decide(view(1, cramped, ending=1.5)).helpless == {"cramped"}


def test_hp_waits_for_one_that_is_asked_again_soon_and_nobody_moves_before() -> None:
    busy, other = tenant("busy", Place.HERE, 3, refused_until=1060.0), tenant("other", Place.HERE, 1)
    away = tenant("away", Place.AWAY, 1)
    assert decide(view(2, busy, other, away, wished=5)).hopeless == {A}
    soon = replace(busy, again_for_hp=1002.0)
    assert decide(view(2, soon, other, away, wished=5)) == Wishes()
    assert decide(view(2, soon, other, away, wished=7)).hopeless == {A}
    assert decide(view(2, soon, other, away, wished=5, now=1002.0)).leave == ("busy",)
    assert decide(view(2, soon, wished=2, now=1002.0)).leave == (), "the room is there"
    others = tenant("one", Place.HERE, 2), tenant("another", Place.HERE, 2)
    assert set(decide(view(2, soon, *others, wished=5, now=1002.0)).leave) == {"one", "another"}, "others suffice"
    assert decide(view(0, soon, reserve=2, now=1002.0)).leave == (), "hp does not wait"


def test_who_borrows_leaves_for_what_others_are_sure_of_also_before_it_has_stayed() -> None:
    returned = tenant("a", Place.HERE, 3, has_returned=True, change_seconds=100)
    assert decide(view(0, returned, owed=2)).leave == ("a",)
    assert decide(view(0, returned, tenant("b", Place.HERE, 2), wished=2, owed=3)).leave == ("b", "a")


def test_who_borrows_leaves_so_that_others_who_are_sure_of_memory_do_not_take_what_is_kept_for_hp() -> None:
    small, large = (tenant(f"of {size}", Place.HERE, size, has_returned=True, change_seconds=100) for size in (2, 3))
    assert decide(view(0, small, large, owed=2)).leave == ("of 2",)
    assert decide(view(1, small, large, owed=3)).leave == ("of 2",)
    assert decide(view(1, small, large, owed=3, reserve=1)).leave == ("of 3",)
    assert decide(view(0, small, large, owed=2, reserve=10)).leave == ("of 2",)
    assert decide(view(0, small, owed=2, reserve=1)).leave == ("of 2",)


def test_nobody_leaves_for_what_others_are_sure_of_if_it_cannot_be_beside_what_hp_waits_for() -> None:
    here = tenant("a", Place.HERE, 3)
    assert decide(view(1, here, owed=5)) == Wishes(unpayable=frozenset({A}))
    assert decide(view(0, here, wished=2, owed=2)) == Wishes(("a",), unpayable=frozenset({A}))


def test_nobody_comes_back_to_what_others_wait_for_who_are_sure_of_it() -> None:
    away = tenant("a", Place.AWAY, 3)
    assert decide(view(4, away, owed=1)).back == ("a",)
    assert decide(view(4, away, owed=2)).back == ()


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


def test_what_hp_has_taken_since_the_driver_was_asked_is_not_free_for_who_comes_back() -> None:
    away, here = tenant("a", Place.AWAY, 3), tenant("b", Place.HERE, 3, clock=1.0)
    assert decide(view(4, away, grown=1)) == Wishes(back=("a",))
    assert decide(view(4, away, grown=2)) == Wishes()
    assert decide(view(4, away, here, grown=2)) == Wishes(), "the driver may have counted it already"


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
    had_much = tenant("much", Place.AWAY, 4, clock=111.0)
    had_little = tenant("little", Place.AWAY, 4, clock=500.0)
    assert decide(view(5, had_much, had_little)).back == ("much",)


def test_who_finds_no_room_waits_for_its_turn() -> None:
    cramped = tenant("cramped", Place.HERE, 5, lacks={A: 2 * GIB}, clock=1.0)
    other = tenant("other", Place.HERE, 4, change_seconds=1e3)
    assert decide(view(1, cramped, other)).leave == ("cramped",)
    assert decide(view(2, cramped, other)) == Wishes(), "the room is there"
    assert decide(view(1, cramped, tenant("leaving", Place.LEAVING, 1))) == Wishes(), "the room is coming"
    assert decide(view(1, cramped)).helpless == {"cramped"}, "nobody else can leave"
    assert decide(view(1, replace(cramped, refused_until=1e9), other)).helpless == {"cramped"}
    small = tenant("small", Place.HERE, 5, lacks={A: GIB})
    assert decide(view(2, small, reserve=2)).helpless == set(), "hp may need less later"
    assert decide(view(1, cramped, kept=1)).helpless == set(), "who was given it may have taken it, and leave with it"
    assert decide(view(2, small, reserve=2)).leave == ("small",)
    second = replace(cramped, name="second", clock=2.0)
    assert decide(view(1, cramped, second, other)).leave == ("second",), "what it leaves is enough for the first"


def test_who_found_no_room_comes_back_with_room_for_it_or_without_if_that_can_never_be() -> None:
    away, other = tenant("away", Place.AWAY, 5, lacks={A: 2 * GIB}), tenant("other", Place.HERE, 2, change_seconds=1e3)
    assert decide(view(4, away, other)).back == ()
    assert decide(view(5, away, other)).back == ("away",)
    assert decide(view(4, away)).back == ("away",)


def test_the_next_takes_the_place_of_one_that_has_stayed() -> None:
    away = tenant("away", Place.AWAY, 4)
    here = tenant("here", Place.HERE, 4, clock=60.0, change_seconds=3.0)
    assert decide(view(0, away, here, now=59.0)).leave == ()
    assert decide(view(0, away, here, now=60.0)).leave == ("here",)
    assert decide(view(0, away, replace(here, clock=0.0), now=60.0)).leave == ()


def test_no_turn_begins_on_a_gpu_while_somebody_moves_there() -> None:
    away, here = tenant("away", Place.AWAY, 4), tenant("here", Place.HERE, 4, clock=60.0)
    for place in (Place.LEAVING, Place.RETURNING):
        assert decide(view(0, away, here, tenant("moves", place, 1, coming={A: 0}))).leave == ()
    assert decide(view(1, away, here, tenant("back", Place.AWAY, 1, clock=-1.0))) == Wishes(back=("back",))
    elsewhere = Tenant("moves", Place.LEAVING, 0.0, {B: GIB})
    assert decide(View(1e3, {A: Room(0), B: Room(0)}, (away, here, elsewhere))).leave == ("here",)


def test_who_waits_for_its_turn_on_one_gpu_keeps_nobody_away_from_another() -> None:
    first, here = tenant("first", Place.AWAY, 4), tenant("here", Place.HERE, 4, change_seconds=1e3)
    second = Tenant("second", Place.AWAY, 0.0, {B: 4 * GIB}, clock=1.0)
    both = Tenant("both", Place.AWAY, 0.0, {A: GIB, B: GIB}, clock=0.5)
    cards = {A: Room(2 * GIB), B: Room(4 * GIB)}
    assert decide(View(1e3, cards, (first, here, second, both))).back == ("second",)


def test_a_small_one_does_not_overtake_a_large_one_whose_turn_it_is() -> None:
    large = tenant("large", Place.AWAY, 8)
    small = tenant("small", Place.AWAY, 1, clock=5.0)
    here = tenant("here", Place.HERE, 7, clock=9.0, change_seconds=1e3)
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


def test_who_had_nearly_all_of_a_gpu_comes_back_without_the_margin_once_nobody_else_is_there() -> None:
    away = tenant("away", Place.AWAY, 79, clock=1)
    empty = replace(view(79, away, margin=0.25), margin_part=0.02)
    assert decide(empty).back == ("away",)
    assert decide(replace(empty, cards={A: replace(empty.cards[A], has_hp=True)})).back == ()
    assert decide(replace(empty, cards={A: replace(empty.cards[A], most=1)})).back == ()
    short = replace(view(78.9, away, margin=0.25), margin_part=0.02)
    assert decide(short) == Wishes(stuck=frozenset({"away"})), "a driver that finds no room would lose it"
    assert decide(replace(short, cards={A: replace(short.cards[A], has_hp=True)})) == Wishes(), "hp has the room"


def test_others_leave_all_together_for_who_had_nearly_all_of_a_gpu_and_nobody_overtakes_it() -> None:
    away, later = tenant("away", Place.AWAY, 79), tenant("later", Place.AWAY, 1, clock=5)
    here = [tenant("here", Place.HERE, 3, clock=9), tenant("small", Place.HERE, 0, clock=9)]
    seen = replace(view(76, away, later, *here, margin=0.25), margin_part=0.02)
    assert decide(seen) == Wishes(leave=("here", "small"))
    gone = tuple(replace(each, place=Place.LEAVING) for each in here)
    assert decide(replace(seen, tenants=(away, later, *gone))) == Wishes()
    early = tuple(replace(each, clock=0) for each in here)
    assert decide(replace(seen, tenants=(away, later, *early))) == Wishes(), "its turn comes"
    stays = (replace(here[0], parks=False), here[1])
    found = decide(replace(seen, tenants=(away, later, *stays)))
    assert found == Wishes(back=("later",), stuck=frozenset({"away"})), "it keeps nobody away in vain"
    refuses = (replace(here[0], refused_until=2000), here[1])
    assert decide(replace(seen, tenants=(away, later, *refuses))) == Wishes(back=("later",)), "it may leave later"


def test_nobody_leaves_for_who_had_nearly_all_of_a_gpu_if_the_others_do_not_fit_into_the_hosts_memory() -> None:
    away = tenant("away", Place.AWAY, 79)
    here = [tenant(name, Place.HERE, 2, clock=9, charged={"the node": 2 * GIB}) for name in ("one", "two")]
    seen = replace(view(75, away, *here, margin=0.25), margin_part=0.02, host={"the node": 3 * GIB})
    assert decide(seen).leave == ()
    assert decide(replace(seen, host={"the node": 4 * GIB})).leave == ("one", "two")
