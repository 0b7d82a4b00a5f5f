"""The room for which a tenant has come back is kept until it has had the time to take it."""

from types import SimpleNamespace
from typing import Any

import pytest

from orion.node_agent.parking import noting
from orion.node_agent.parking.gpu_room import GpuRoom
from orion.node_agent.parking.known import Known
from orion.node_agent.parking.view import Place
from orion.node_agent.settings import AgentSettings
from orion.node_agent.slots.parking_state import GpuParking

GIB, GPU = 1 << 30, "GPU-1"


class Client(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]


@pytest.fixture
def room() -> GpuRoom:
    shared_gpu: Any = SimpleNamespace(parking=GpuParking(), slots={}, clients={}, living_hp={}, awaited={})
    return GpuRoom(shared_gpu, AgentSettings())


@pytest.fixture
def tenant() -> Any:
    """One that has left because it lacks 2 GiB."""
    client = Client(slot=SimpleNamespace(gpu=GPU), record=SimpleNamespace(memory_mib=3072))
    return SimpleNamespace(clients=[client], known=Known(0.0, Place.AWAY, lacks={GPU: 2 * GIB}))


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


def test_one_that_has_come_back_and_asks_again_waits(room: GpuRoom, tenant: Any) -> None:
    tenant.known.move(Place.RETURNING, 1.0)
    tenant.known.move(Place.HERE, 2.0)
    room.cramped.note(tenant.clients[0], 2 * GIB, 2.0)
    noting.keep_untaken(2.0, [tenant], {GPU: room})
    assert (room.cramped.kept(), room.cramped.lacking()) == (0, {tenant.clients[0]: 2 * GIB})


def test_one_that_stays_has_come_back_for_nothing(room: GpuRoom, tenant: Any) -> None:
    tenant.known.place = Place.LEAVING
    tenant.known.move(Place.HERE, 1.0)
    noting.keep_untaken(1.0, [tenant], {GPU: room})
    assert room.cramped.kept() == 0
