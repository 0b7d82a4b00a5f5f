"""What changes on a GPU without a message: what the driver says, and what clients hold and answer.

A decision is needed only where that differs from what the last one saw.
"""

from collections.abc import Iterable

from orion.hook.layout import ParkingState
from orion.node_agent.clients.client import Client, says_what_it_holds
from orion.node_agent.parking.gpu_room import GpuRoom
from orion.node_agent.parking.present import Listed, Present

_LEAVING = frozenset({ParkingState.RUNNING, ParkingState.LEAVING})
_RETURNING = frozenset({ParkingState.PARKED, ParkingState.RETURNING, ParkingState.LEAVING})
""" What clients answer that do what they have been asked. """


def news(uuid: str, room: GpuRoom, tenants: Iterable[Present], listed: Listed) -> object:
    """Return what a decision about a GPU depends on. Two values are compared; they have no other use.

    While somebody moves, what is free changes all the time. Until the move is done that matters to hp only. The tenant
    itself says when it is done (`Parking._look_at_moving`).

    Args:
        uuid: of the GPU.
        room: of the GPU.
        tenants: all that have processes there.
        listed: what the driver lists.
    """
    here = list(tenants)
    if any(each.moves for each in here):
        return (room.free, listed.get(uuid)) if room.has_hp else None
    said = [(client.record.memory_mib, _answer(client)) for each in here for client in each.clients]
    return room.free, listed.get(uuid), said, room.is_short


def _answer(client: Client) -> object:
    """Return what a client answers; None: it is about to do what it has been asked."""
    answer, is_asked = client.record.parking, client.slot.parking.is_asked
    if client.stays:
        return answer, says_what_it_holds(client)
    return None if answer.state in (_LEAVING if is_asked else _RETURNING) else answer
