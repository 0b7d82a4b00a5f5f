"""What is kept free for hp follows how fast hp grows, and what hp asks for is counted once."""

from types import SimpleNamespace
from typing import Any

import pytest

from orion.hook.join import CreditAnswer
from orion.hook.layout import ParkingReason, ParkingState
from orion.node_agent.pages.parking_words import ParkingAnswer
from orion.node_agent.parking.answers import Asked, Verdict, verdict
from orion.node_agent.parking.reserve import Reserve
from orion.node_agent.parking.wishes import RoomWishes

GIB = 1 << 30


def test_the_reserve_is_what_hp_takes_while_somebody_leaves() -> None:
    reserve = Reserve(GIB // 2)
    assert reserve.look(0, None, 80 * GIB, 10) == 0, "nobody holds a slot of hp"
    assert reserve.look(1, 0, 80 * GIB, 10) == GIB // 2
    for second in range(1, 20):  # hp grows by 1 GiB a second
        value = reserve.look(1 + second, second * GIB, 80 * GIB, 10)
    assert 10 * GIB <= value <= 13 * GIB
    assert reserve.rate == pytest.approx(GIB, rel=0.2)
    assert reserve.look(21, 19 * GIB, 3 * GIB, 10) == 3 * GIB, "hp may take no more"
    assert reserve.look(321, 19 * GIB, 80 * GIB, 10) == pytest.approx(value / 2, rel=0.1)
    assert reserve.rate == 0
    assert reserve.look(5000, 19 * GIB, 80 * GIB, 10) == GIB // 2


def client(held_mib: int = 0) -> Any:
    class Record:
        memory_mib = held_mib

    class StandIn(SimpleNamespace):
        def __hash__(self) -> int:  # type: ignore[override]
            return id(self)

    return StandIn(record=Record())


def test_a_wish_is_answered_by_a_decision_that_knew_it() -> None:
    wishes, hp = RoomWishes(), client()
    wish, is_new = wishes.note(hp, GIB, 10.0)
    assert is_new
    assert wishes.answer(wish, 2 * GIB, 10.0) is CreditAnswer.LATER
    wishes.decided = 10.001
    assert not wishes.note(hp, GIB, 10.005)[1]
    assert wishes.answer(wish, GIB // 2, 10.006) is CreditAnswer.LATER
    wishes.give_up()
    assert wishes.answer(wish, GIB // 2, 10.006) is CreditAnswer.NO
    assert wishes.answer(wish, GIB, 10.007) is CreditAnswer.YES
    assert (wishes.wished, wishes.kept()) == (0, GIB)
    other, _ = wishes.note(client(), GIB, 10.0005)
    assert wishes.answer(other, 2 * GIB - 1, 10.007) is not CreditAnswer.YES, "the room is the first one's"
    hp.record.memory_mib = 1024
    wishes.forget(10.01)
    assert wishes.kept() == 0


def test_a_wish_that_came_after_the_driver_was_asked_is_not_given_up() -> None:
    wishes = RoomWishes()
    wish, _ = wishes.note(client(), GIB, 10.0)
    wishes.decided = 9.999
    wishes.give_up()
    assert (wishes.wished, wishes.answer(wish, 0, 10.001)) == (GIB, CreditAnswer.LATER)
    wishes.decided = 10.001
    wishes.give_up()
    assert wishes.answer(wish, 0, 10.002) is CreditAnswer.NO


def test_a_wish_that_nobody_can_fulfil_harms_no_other_one() -> None:
    wishes, greedy, modest = RoomWishes(), client(), client()
    large, _ = wishes.note(greedy, 80 * GIB, 10.0)
    small, _ = wishes.note(modest, GIB, 10.0)
    wishes.decided = 10.01
    wishes.give_up()
    assert wishes.wished == GIB, "the next decision is about the other wish alone"
    assert wishes.answer(small, 0, 10.02) is CreditAnswer.LATER
    assert wishes.answer(large, 0, 10.02) is CreditAnswer.NO
    again, is_new = wishes.note(greedy, GIB // 2, 10.02)
    assert (again.size, is_new) == (GIB // 2, True), "the answer was about the earlier wish"
    assert wishes.answer(again, 0, 10.02) is CreditAnswer.LATER


def test_a_wish_that_nobody_can_fulfil_harms_no_smaller_one_of_another_thread_of_the_client() -> None:
    wishes, hp = RoomWishes(), client()
    for size in (GIB, 60 * GIB):
        wishes.note(hp, size, 10.0)
    for began in (10.0, 11.0, 12.0):  # again and again
        wishes.decided = began + 0.01
        wishes.give_up()
        small, is_new = wishes.note(hp, GIB, began + 0.02)
        assert (small.size, is_new, wishes.wished) == (GIB, True, GIB), "the next decision is about it"
        assert wishes.answer(small, 0, began + 0.02) is CreditAnswer.LATER
        again, is_new = wishes.note(hp, 61 * GIB, began + 0.03)
        assert (wishes.answer(again, 0, began + 0.03), is_new, wishes.wished) == (CreditAnswer.NO, False, GIB)
        assert wishes.note(hp, GIB, began + 0.04) == (small, False)
        larger, is_new = wishes.note(hp, 60 * GIB, began + 0.05)
        assert (larger.size, is_new) == (60 * GIB, True), "the answer was about the earlier wish"
        wishes.note(hp, GIB, began + 0.9)
    wishes.drop([hp])
    assert not wishes.waiting()


def test_who_asks_before_each_allocation_needs_no_more_each_time() -> None:
    wishes, be = RoomWishes(), client()
    for number in range(5):
        now = 10.0 + number / 100
        wish, _ = wishes.note(be, GIB, now, may_be_first=True)
        wishes.decided = now
        assert wishes.answer(wish, GIB, now) is CreditAnswer.YES
        assert wish.needed == GIB


def test_what_is_given_to_who_does_not_wait_is_given_to_nobody_else() -> None:
    wishes = RoomWishes()
    wishes.give(client(), GIB, 10.0)
    assert (wishes.kept(), wishes.wished) == (GIB, 0)
    wishes.forget(11.1)
    assert wishes.kept() == 0


def test_what_has_been_given_is_kept_and_lacks_no_more() -> None:
    wishes, be = RoomWishes(), client()
    wishes.note(be, GIB, now=1.0)
    assert (list(wishes.waiting()), wishes.wished, wishes.kept()) == ([be], GIB, 0)
    wishes.give(be, GIB, now=1.0)
    assert (wishes.wished, wishes.kept()) == (0, GIB)


def test_what_a_client_has_been_given_is_not_kept_for_long() -> None:
    wishes, hp = RoomWishes(), client(1024)  # it says before an allocation that it holds the memory
    wish, _ = wishes.note(hp, GIB, 10.0)
    wishes.decided = 10.01
    assert wishes.answer(wish, GIB, 10.6) is CreditAnswer.YES
    wishes.forget(10.7)
    assert wishes.kept() == GIB
    wishes.forget(10.9)
    assert wishes.kept() == 0


def test_an_allocation_that_fails_beside_free_room_gets_more() -> None:
    wishes, hp = RoomWishes(), client()
    wishes.decided = 100.0
    wish, _ = wishes.note(hp, GIB, 10.0)
    assert wishes.answer(wish, GIB, 10.007) is CreditAnswer.YES
    again, is_new = wishes.note(hp, GIB, 10.01)
    assert (again is wish, is_new) == (True, True)
    assert again.needed == GIB + (64 << 20)
    wishes.forget(20.0)
    assert wishes.wished == 0


def asked(number: int, seconds: float = 1.0, **fields: Any) -> Asked:
    return Asked(number, seconds, **{"held": 0, "parked_seconds": 0.0, "listed": 0, "patience": 15.0, **fields})


def answer(state: ParkingState, number: int = 0) -> ParkingAnswer:
    return ParkingAnswer(number, 0, ParkingReason.NONE, state)


def test_what_a_client_says_is_believed_for_a_limited_time_only() -> None:
    assert verdict(answer(ParkingState.RUNNING), asked(1)) is Verdict.LEAVING
    assert verdict(answer(ParkingState.RUNNING), asked(1, 16.0)) is Verdict.SILENT
    assert verdict(answer(ParkingState.LEAVING), asked(1, 16.0)) is Verdict.OVERDUE
    assert verdict(answer(ParkingState.LEAVING), asked(1, 16.0, held=1 << 30)) is Verdict.LEAVING
    assert verdict(answer(ParkingState.REFUSED, 3), asked(3)) is Verdict.REFUSED
    assert verdict(answer(ParkingState.REFUSED, 1), asked(3)) is Verdict.LEAVING
    assert verdict(answer(ParkingState.PARKED), asked(1, listed=1, parked_seconds=1.9)) is Verdict.PARKED
    assert verdict(answer(ParkingState.PARKED), asked(1, listed=1, parked_seconds=2.1)) is Verdict.LIES
    for number in (1, 2):
        assert verdict(answer(ParkingState.LOST), asked(number, parked_seconds=60.0)) is Verdict.LOST
        assert verdict(answer(ParkingState.LOST), asked(number, listed=1, parked_seconds=1.9)) is Verdict.LOST
        assert verdict(answer(ParkingState.LOST), asked(number, listed=1, parked_seconds=2.1)) is Verdict.LIES
    assert verdict(answer(ParkingState.PARKED), asked(2)) is Verdict.RETURNING
    assert verdict(answer(ParkingState.PARKED), asked(2, 16.0)) is Verdict.ASLEEP
    assert verdict(answer(ParkingState.RETURNING), asked(2)) is Verdict.RETURNING
    assert verdict(answer(ParkingState.RETURNING), asked(2, 16.0)) is Verdict.HERE
    for state in (ParkingState.RETURNING, ParkingState.LEAVING):
        assert verdict(answer(state), asked(0, was_away=False)) is Verdict.HERE
    assert verdict(answer(ParkingState.PARKED), asked(0, was_away=False)) is Verdict.PARKED


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (0, (0, 0, ParkingReason.NONE, ParkingState.RUNNING)),
        (7 << 32 | 801 << 16 | 2 << 8 | 4, (7, 801, ParkingReason.MANAGED, ParkingState.REFUSED)),
        (2**64 - 1, (2**32 - 1, 0xFFFF, ParkingReason.NONE, ParkingState.RUNNING)),
    ],
)
def test_any_word_is_an_answer(word: int, expected: tuple[object, ...]) -> None:
    assert ParkingAnswer.of(word) == expected
