"""What is on its way: room that one has come back for, and what processes that have ended may still hold."""

from types import SimpleNamespace
from typing import Any

import pytest

from orion.hook.layout import ParkingState
from orion.node_agent.parking import noting
from orion.node_agent.parking.gpu_room import GpuRoom
from orion.node_agent.parking.known import Known
from orion.node_agent.parking.view import Place
from orion.node_agent.settings import AgentSettings
from orion.node_agent.slots.parking_state import GpuParking
from tests.node_agent.parking_stubs import Stub

GIB, GPU = 1 << 30, "GPU-1"


@pytest.fixture
def room() -> GpuRoom:
    shared_gpu: Any = SimpleNamespace(parking=GpuParking(), slots={}, clients={}, living_hp={}, awaited={})
    shared_gpu.gpu = SimpleNamespace(memory_bytes=8 * GIB)
    return GpuRoom(shared_gpu, AgentSettings())


def client(slot: Any, record: Any) -> Any:
    return Stub(slot=slot, record=record, uncounted_mib=0, awaits_driver=False, listed_mib=0, before_lowering=(0, 0))


@pytest.fixture
def tenant() -> Any:
    """One that has left because it lacks 2 GiB."""
    one = Stub(slot=SimpleNamespace(gpu=GPU), record=SimpleNamespace(memory_mib=3072))
    return SimpleNamespace(clients=[one], known=Known(0.0, Place.AWAY, lacks={GPU: 2 * GIB}))


def test_what_one_has_come_back_for_is_kept_for_a_while(room: GpuRoom, tenant: Any) -> None:
    tenant.known.move(Place.RETURNING, 1.0)
    noting.keep_untaken(1.0, [tenant], {GPU: room})
    assert room.cramped.kept() == 0
    tenant.known.move(Place.HERE, 2.0)
    tenant.known.lacks = {}  # it waits for nothing any more
    noting.keep_untaken(2.0, [tenant], {GPU: room})
    assert (room.cramped.kept(), room.cramped.wished) == (2 * GIB, 0)
    assert room.seen(2.0, []).kept == 2 * GIB, "nobody else is let back into it"
    noting.keep_untaken(2.2, [tenant], {GPU: room})
    room.cramped.forget(2.3)
    assert room.cramped.kept() == 0


@pytest.mark.parametrize("asks_again", [0, 1])
def test_one_that_has_come_back_and_asks_again_waits(room: GpuRoom, tenant: Any, asks_again: int) -> None:
    tenant.clients.append(Stub(**vars(tenant.clients[0])))
    tenant.known.move(Place.RETURNING, 1.0)
    tenant.known.move(Place.HERE, 2.0)
    room.cramped.note(tenant.clients[asks_again], 2 * GIB, 2.0)
    noting.keep_untaken(2.0, [tenant], {GPU: room})
    assert (room.cramped.kept(), room.cramped.wished) == (0, 2 * GIB)


def test_one_that_stays_has_come_back_for_nothing(room: GpuRoom, tenant: Any) -> None:
    tenant.known.place = Place.LEAVING
    tenant.known.move(Place.HERE, 1.0)
    noting.keep_untaken(1.0, [tenant], {GPU: room})
    assert room.cramped.kept() == 0


def test_what_has_just_ended_may_still_hold_its_memory(room: GpuRoom) -> None:
    clients, parking = room._shared_gpu.clients, SimpleNamespace(state=ParkingState.RUNNING)
    for number, mib in enumerate((1024, 2048)):
        record = SimpleNamespace(memory_mib=mib, taken_mib=None, parking=parking)
        slot = Stub(grant=SimpleNamespace(memory_limit_bytes=0))
        clients[number] = client(slot, record)
    room.look(1.0, [])
    del clients[0]
    assert room.seen(1.5, []).ending == 0
    room.look(2.0, [])
    assert room.seen(2.0, []).ending == GIB
    parking.state = ParkingState.PARKED
    room.look(3.0, [])
    del clients[1]
    room.look(3.5, [])
    assert room.seen(3.5, []).ending == GIB, "what was parked is on the GPU no more"
    room.look(4.0, [])
    assert room.seen(4.0, []).ending == 0


def test_who_ends_after_it_said_more_than_it_may_hold_delays_nobody_by_that(room: GpuRoom) -> None:
    clients = room._shared_gpu.clients
    slot = Stub(grant=SimpleNamespace(memory_limit_bytes=GIB))
    record = SimpleNamespace(memory_mib=1 << 30, taken_mib=None, parking=SimpleNamespace(state=ParkingState.RUNNING))
    clients[0] = client(slot, record)
    room.look(1.0, [])
    del clients[0]
    room.look(2.0, [])
    assert room.seen(2.0, []).ending == GIB + (GIB >> 2)
