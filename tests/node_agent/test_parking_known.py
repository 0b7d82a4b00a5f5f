"""What is known of a tenant: what it may hold, and where its memory is by what the driver has said."""

from types import SimpleNamespace
from typing import Any

import pytest

from orion.node_agent.parking.known import YOUNG_SECONDS, Known
from orion.node_agent.parking.member import Member
from orion.node_agent.parking.tenants import Present, Tenants
from orion.node_agent.parking.view import Place
from orion.node_agent.slots.memory_sharing import MemorySharing
from orion.node_agent.slots.parking_state import SlotParking

GIB, GPU = 1 << 30, "GPU-1"


def present(limit: int, held_mib: int) -> Present:
    gpu: Any = SimpleNamespace(gpu=SimpleNamespace(memory_bytes=8 * GIB))
    slot: Any = SimpleNamespace(
        gpu=GPU, grant=SimpleNamespace(memory_limit_bytes=limit), memory_sharing=MemorySharing(), parking=SlotParking()
    )
    client: Any = SimpleNamespace(
        record=SimpleNamespace(memory_mib=held_mib, parked_bytes=0), uncounted_mib=0, process_id=1
    )
    return Present("pod a/b", Known(0, here_seconds=YOUNG_SECONDS), [Member(gpu, slot, (client,), False)])


def test_a_lie_of_once_keeps_no_room_for_ever() -> None:
    liar = present(GIB, 2**40)
    liar.note(1.0, 1.0, waits=True)
    assert liar.wants() == {GPU: GIB}
    without_limit = present(0, 2**40)
    without_limit.note(1.0, 1.0, waits=True)
    assert without_limit.wants() == {GPU: 8 * GIB}


@pytest.mark.parametrize(("moves", "then"), [(Place.LEAVING, Place.AWAY), (Place.RETURNING, Place.HERE)])
def test_an_answer_of_before_a_move_says_nothing(moves: Place, then: Place) -> None:
    tenants, tenant = Tenants(), present(GIB, 512)
    tenants.present = {tenant.name: tenant}
    tenant.known.move(moves, 1.0)
    assert not tenants.moved_since(0.5), "what moves is known to move"
    tenant.known.move(then, 2.0)
    assert tenants.moved_since(1.9)
    assert not tenants.moved_since(2.1)
