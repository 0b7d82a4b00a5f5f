"""Nobody comes back to room that hp or be takes at this moment, whatever the driver has said to be free."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orion.hook import layout
from orion.hook.layout import ParkingState
from orion.node_agent.parking import host_room
from orion.node_agent.parking.parking import Parking
from orion.node_agent.parking.view import Place, View, Wishes
from tests.node_agent.asking_thread import Thread
from tests.node_agent.conftest import GPU, eventually
from tests.node_agent.fake_card import MIB
from tests.node_agent.parking_cards import GIB, Cards
from tests.node_agent.parking_stubs import Stub, Tenants, note_views, stub_parking


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[View]:
    """What was decided upon."""
    return note_views(monkeypatch)


@pytest.fixture
def thread() -> Thread:
    return Thread()


@pytest.fixture
def parking(thread: Thread, tmp_path: Path) -> Parking:
    return stub_parking(thread, tmp_path)


@pytest.fixture
def hp(parking: Parking) -> Any:
    """hp, which says to hold so many MiB."""
    record = SimpleNamespace(memory_mib=1024, taken_mib=None, parking=SimpleNamespace(state=ParkingState.RUNNING))
    slot = parking._gpus[GPU].shared_gpu.slots["hp-0"]
    made: Any = Stub(
        record=record, slot=slot, uncounted_mib=0, awaits_driver=False, listed_mib=0, before_lowering=(0, 0)
    )
    parking._gpus[GPU].shared_gpu.living_hp[0, 1] = made
    parking._gpus[GPU].shared_gpu.clients[0] = made
    return made


def grown(parking: Parking, views: list[View]) -> int:
    """Look once; return what hp had taken since the driver was asked, in MiB."""
    asyncio.run(parking.look())
    return views[-1].cards[GPU].grown // MIB


def test_what_hp_takes_while_the_driver_is_slow_is_not_free(
    parking: Parking, thread: Thread, views: list[View], hp: Any
) -> None:
    assert grown(parking, views) == 0
    thread.hangs = True
    hp.record.memory_mib += 300
    assert grown(parking, views) == 300
    hp.record.memory_mib -= 400
    assert grown(parking, views) == 0, "what hp frees the driver has to say"


def test_what_a_hook_says_to_be_taking_is_not_free_until_it_is_taken(
    parking: Parking, views: list[View], hp: Any
) -> None:
    """A thread may stop between its last look at the agent's words and the driver's call, for as long as it likes."""
    hp.record.taken_mib, hp.uncounted_mib = 1024, 100
    assert grown(parking, views) == 0
    hp.record.memory_mib += 300
    for _ in range(5):
        assert grown(parking, views) == 300
    hp.record.taken_mib += 300
    assert grown(parking, views) == 0, "the driver was asked after that"


def test_what_has_failed_and_is_tried_again_has_not_been_taken(
    parking: Parking, thread: Thread, views: list[View], hp: Any
) -> None:
    hp.record.memory_mib, hp.record.taken_mib = 1324, 1024
    assert grown(parking, views) == 300
    thread.hangs = True
    hp.record.taken_mib = 1324
    assert grown(parking, views) == 300, "the driver was asked before that"


def test_what_one_that_waits_for_room_wants_counts_once(parking: Parking, views: list[View], hp: Any) -> None:
    hp.record.taken_mib = 1024
    assert grown(parking, views) == 0
    room = parking._room(GPU)
    hp.record.memory_mib += 400
    wish, _ = room.wishes.note(hp, 300 * MIB, time.monotonic())
    wish.more = 200 * MIB
    assert grown(parking, views) == 100, "another thread takes the rest"


def test_processes_of_a_slot_that_say_too_much_keep_nobody_away_together(
    parking: Parking, views: list[View], hp: Any
) -> None:
    hp.slot.grant.memory_limit_bytes = 2048 * MIB
    others = [Stub(**vars(hp) | {"record": SimpleNamespace(**vars(hp.record))}) for _ in range(3)]
    parking._gpus[GPU].shared_gpu.clients.update(enumerate(others, 1))  # type: ignore[arg-type]
    assert grown(parking, views) == 0
    for each in others:
        each.record.memory_mib = 1 << 30
    assert grown(parking, views) == 2048 + 256


def test_what_the_hook_of_an_earlier_version_holds_may_not_be_taken_yet_when_the_driver_is_asked(
    parking: Parking, views: list[View], hp: Any
) -> None:
    assert grown(parking, views) == 0
    hp.record.memory_mib += 300
    assert grown(parking, views) == 300
    assert grown(parking, views) == 0


@pytest.mark.parametrize(
    ("limit_mib", "listed_mib", "most_mib"),
    [(0, 0, 8 * 1024), (2048, 0, 2048 + 256), (2048, 4096, 4096), (16 * 1024, 0, 8 * 1024)],
)
def test_who_says_to_hold_more_than_it_may_keeps_nobody_away_by_that(
    parking: Parking, views: list[View], hp: Any, limit_mib: int, listed_mib: int, most_mib: int
) -> None:
    hp.slot.grant.memory_limit_bytes, hp.listed_mib = limit_mib * MIB, listed_mib
    assert grown(parking, views) == 0
    hp.record.memory_mib = 1 << 30
    assert grown(parking, views) == most_mib - 1024


@pytest.mark.parametrize("grows", [False, True])
def test_who_may_come_back_stays_if_hp_takes_room_before_it_knows(
    parking: Parking, views: list[View], hp: Any, monkeypatch: pytest.MonkeyPatch, grows: bool
) -> None:
    away: Any = Tenants(Place.AWAY)
    parking.tenants = away
    asked: list[bool] = []
    monkeypatch.setattr(parking, "_tell", lambda present, away, now: asked.append(away))
    monkeypatch.setattr(host_room, "decide", lambda view: Wishes(back=("one",)))

    def write(mib: int) -> None:
        hp.record.memory_mib += 300 * grows

    slot = parking._gpus[GPU].shared_gpu.slots["hp-0"]
    slot.page.set_returning = write  # type: ignore[method-assign]
    asyncio.run(parking.look())
    assert asked == ([] if grows else [False])


def test_nobody_comes_back_to_room_that_hp_has_taken_since_the_driver_was_asked(cards: Cards) -> None:
    hp, tenant = cards.hp(limit=5 * GIB), cards.be("be-0", 4000).obey()
    other = cards.be("be-1", 100).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        tenant.reaches(ParkingState.PARKED)
        eventually(cards.is_in("be-0", "parked"))
        cards.card.silence.touch()
        assert cards.hold(hp, 5 * 1024), "nobody comes back, so hp asks nobody"
        administrator.park_slot(GPU, "be-0", away=False)
        administrator.park_slot(GPU, "be-1", away=True)
        other.reaches(ParkingState.PARKED)  # so the agent has decided
        cards.card.silence.unlink()
    assert hp.grant.get(layout.GrantPage, "returning_mib") == 0
    assert tenant.state is ParkingState.PARKED
    cards.leaves(hp)
    tenant.reaches(ParkingState.RUNNING)


def test_nobody_comes_back_to_room_that_be_has_taken_since_the_driver_was_asked(cards: Cards) -> None:
    tenant, grows = cards.be("be-0", 4000).obey(), cards.be("be-1", 100, limit=6000 * MIB)
    other = cards.be("be-2", 100).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        tenant.reaches(ParkingState.PARKED)
        eventually(cards.is_in("be-0", "parked"))
        cards.card.silence.touch()
        assert cards.hold(grows, 6000), "nobody comes back, so it asks nobody"
        administrator.park_slot(GPU, "be-0", away=False)
        administrator.park_slot(GPU, "be-2", away=True)
        other.reaches(ParkingState.PARKED)  # so the agent has decided
        cards.card.silence.unlink()
    assert grows.grant.get(layout.GrantPage, "returning_mib") == 0
    assert tenant.state is ParkingState.PARKED
    assert cards.card.lost == 0
