"""What the agent does about parking while the driver answers late, and what it leaves when nobody parks any more."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orion.hook import layout
from orion.hook.join import CreditAnswer
from orion.hook.layout import ParkingState
from orion.node_agent.api.client import AgentClient
from orion.node_agent.parking import gpu_room, host_room, pace
from orion.node_agent.parking.parking import Parking
from orion.node_agent.parking.view import Place, View, Wishes
from tests.node_agent.asking_thread import Thread
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.fake_card import Card, Tenant, wait_for_room
from tests.node_agent.parking_stubs import GIB, Tenants, note_views, stub_parking
from tests.node_agent.protocol_client import ProtocolClient
from tests.waiting import DEADLINE


@pytest.fixture
def thread() -> Thread:
    return Thread()


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[View]:
    """What was decided upon."""
    return note_views(monkeypatch)


@pytest.fixture
def parking(thread: Thread, tmp_path: Path) -> Parking:
    return stub_parking(thread, tmp_path)


def test_nobody_moves_by_an_answer_of_before_a_move_while_the_driver_is_slow(
    parking: Parking, thread: Thread, views: list[View]
) -> None:
    async def look_until_decided() -> int | None:
        before = len(views)
        while len(views) == before:
            await parking.look()
        return views[-1].cards[GPU].free

    async def run() -> None:
        assert await look_until_decided() == GIB, "a tenant that always moves stops nobody else"
        thread.hangs = True
        assert await look_until_decided() is None

    asyncio.run(run())


def test_a_driver_that_hangs_costs_no_memory(parking: Parking, thread: Thread, views: list[View]) -> None:
    async def run() -> None:
        thread.hangs = True
        for _ in range(20):
            await parking.look()

    asyncio.run(run())
    assert views
    assert [answer.waiting for answer in thread.answers] == [1]


def test_hp_gets_room_while_the_driver_hangs_for_another_gpu(
    socket_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    card = Card(tmp_path)
    monkeypatch.setenv("ORION_TEST_BOOKS", str(card.file))
    agent = AgentProcess(socket_folder / "root", Card.library(tmp_path, gpus=2))
    agent.start("--parking-reserve-mib", "0", "--parking-margin-mib", "0")
    try:
        with AgentClient(agent.root) as administrator:
            administrator.set_grant(GPU, "hp-0", memory_wait_ms=30_000)
            administrator.set_grant(GPU, "be-0", memory_parks=True)
            be = Tenant.on(card, agent.slot("be-0"), 6144).obey()
            administrator.park_slot(GPU, "be-0", away=True)
            be.reaches(ParkingState.PARKED)
            card.hang.touch()
            administrator.park_slot(GPU, "be-0", away=False)
            be.reaches(ParkingState.RETURNING, ParkingState.RUNNING)
            hp = ProtocolClient(agent.slot("hp-0")).join()
            assert wait_for_room(hp, 4 * GIB) is CreditAnswer.YES
            hp.close()
            be.close()
    finally:
        card.hang.unlink(missing_ok=True)
        agent.kill()


def test_hp_asks_nobody_once_the_last_tenant_that_came_back_has_ended(
    socket_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    card = Card(tmp_path)
    monkeypatch.setenv("ORION_TEST_BOOKS", str(card.file))
    agent = AgentProcess(socket_folder / "root", Card.library(tmp_path))
    agent.start("--parking-reserve-mib", "0", "--parking-margin-mib", "0")
    try:
        with AgentClient(agent.root) as administrator:
            administrator.set_grant(GPU, "hp-0", memory_wait_ms=30_000)
            administrator.set_grant(GPU, "be-0", memory_parks=True)
            hp = ProtocolClient(agent.slot("hp-0")).join()
            be = Tenant.on(card, agent.slot("be-0"), 2048)
            be.stops_before = ParkingState.RETURNING
            be.obey()
            administrator.park_slot(GPU, "be-0", away=True)
            be.reaches(ParkingState.PARKED)
            administrator.park_slot(GPU, "be-0", away=False)
            eventually(lambda: hp.grant.get(layout.GrantPage, "returning_mib") == 2048, "it may come back")
            be.close()
            eventually(lambda: hp.grant.get(layout.GrantPage, "returning_mib") == 0, "nobody comes back any more")
            hp.close()
    finally:
        agent.kill()


def deciding(
    parking: Parking, views: list[View], monkeypatch: pytest.MonkeyPatch, tenants: Any, free: list[int]
) -> Callable[[], int]:
    """Return a function that looks three times and returns how often the agent has decided by then.

    The tenants are those given, and the driver says that the last amount of `free` is free.
    """
    source: Any = SimpleNamespace(memory_free_bytes=lambda gpu: free[-1], memory_of_processes=lambda gpu: {})
    parking.tenants = tenants
    monkeypatch.setattr(parking._asking, "_source", source)

    def decisions() -> int:
        for _ in range(3):
            asyncio.run(parking.look(at_once=False))
        return len(views)

    return decisions


@pytest.mark.parametrize("beside_hp", [True, False])
def test_while_somebody_moves_the_agent_decides_upon_news_only(
    parking: Parking, thread: Thread, views: list[View], monkeypatch: pytest.MonkeyPatch, beside_hp: bool
) -> None:
    """Beside hp the driver is asked each time, since what becomes free is for hp at once."""
    free, leaving = [GIB], Tenants()
    monkeypatch.setattr(pace, "LOOK_SECONDS", 3600.0)
    monkeypatch.setattr(gpu_room.GpuRoom, "has_hp", beside_hp)
    decisions = deciding(parking, views, monkeypatch, leaving, free)

    assert decisions() == 1
    free.append(2 * GIB)
    assert decisions() == 1 + beside_hp
    leaving.record.parking = SimpleNamespace(state=ParkingState.LEAVING)
    assert decisions() == 1 + beside_hp, "it does what it has been asked"
    leaving.record.parking = SimpleNamespace(state=ParkingState.PARKED)
    assert decisions() == 2 + beside_hp
    asyncio.run(parking.look(at_once=True))
    assert len(views) == 3 + beside_hp
    assert len(thread.answers) == (11 if beside_hp else 3)


def test_while_all_tenants_are_here_the_agent_decides_upon_news_only(
    parking: Parking, views: list[View], monkeypatch: pytest.MonkeyPatch
) -> None:
    free, here = [GIB], Tenants(Place.HERE)
    monkeypatch.setattr(pace, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(pace, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(pace, "REST_SECONDS", 3600.0)
    decisions = deciding(parking, views, monkeypatch, here, free)

    assert decisions() == 1
    here.record.memory_mib = 2
    assert decisions() == 2
    free.append(2 * GIB)
    assert decisions() == 3
    monkeypatch.setattr(gpu_room.GpuRoom, "is_short", True)
    assert decisions() == 4, "the reserve for hp has risen"
    monkeypatch.setattr(pace, "REST_SECONDS", 0.0)
    here.record.memory_mib = 3
    assert decisions() == 7, "what follows from time alone is seen later"
    monkeypatch.setattr(pace, "REST_SECONDS", 3600.0)
    here.one.rests = False
    free.append(GIB)
    assert decisions() == 10, "somebody may have to be asked again"


def test_while_a_tenant_is_away_the_agent_decides_upon_news_and_when_its_time_has_come(
    parking: Parking, views: list[View], monkeypatch: pytest.MonkeyPatch
) -> None:
    free, away, changes = [GIB], Tenants(Place.AWAY), [0.0]
    away.one.rests, away.one.changes_at = True, lambda now: changes[-1]
    monkeypatch.setattr(pace, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(pace, "REST_SECONDS", 3600.0)
    decisions = deciding(parking, views, monkeypatch, away, free)

    assert decisions() == 3
    changes.append(float("inf"))
    assert decisions() == 4
    free.append(2 * GIB)
    assert decisions() == 5
    monkeypatch.setattr(gpu_room.GpuRoom, "has_hp", True)
    free.append(GIB)
    assert decisions() == 8, "what hp needs changes without news"


def test_a_look_at_all_gpus_that_fails_is_repeated(parking: Parking, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, done = [], asyncio.Event()

    async def look(at_once: bool) -> float:
        looks.append(at_once)
        if len(looks) == 1:
            raise OSError
        if len(looks) == 3:
            done.set()
        return 0.0

    async def run() -> None:
        parking.wake()
        running = asyncio.create_task(parking.run())
        await asyncio.wait_for(done.wait(), DEADLINE)
        running.cancel()

    monkeypatch.setattr(pace, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(parking, "look", look)
    asyncio.run(run())
    assert looks == [True, True, False]


def test_while_cgroups_are_read_the_agent_serves_its_clients(
    parking: Parking, views: list[View], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is slow to read delays the decision and nothing else."""
    served, leaving = threading.Event(), Tenants(Place.HERE)
    tenants: Any = leaving
    leaving.one.members = [SimpleNamespace(clients=[SimpleNamespace(process_id=1, stays=False)], held=GIB)]

    def cgroups(process_id: int) -> list[Path]:
        assert served.wait(DEADLINE), "the event loop waits for the file"
        return []

    memory: Any = SimpleNamespace(cgroups=cgroups, node_left=lambda: 0)
    parking.tenants = tenants
    asked_to_leave: list[bool] = []
    monkeypatch.setattr(parking, "_host", host_room.HostRoom(memory))
    monkeypatch.setattr(parking, "_tell", lambda present, away, now: asked_to_leave.append(away))
    monkeypatch.setattr(host_room, "decide", lambda view: Wishes(leave=("one",)))
    monkeypatch.setattr(host_room, "held", lambda client: GIB)

    async def run() -> None:
        looking = asyncio.create_task(parking.look())
        asyncio.get_running_loop().call_later(0.01, served.set)
        await looking

    asyncio.run(run())
    assert asked_to_leave == [True]
