"""Asks a tenant to leave, or lets it back.

The number of each wish is saved before it is written, so the next agent never repeats one. A client that has left says
so in its record, and the next agent asks it to stay away before it can see anything else (`keep_away`).
"""

from collections.abc import Callable, Iterable

from orion.node_agent.clients import messages
from orion.node_agent.parking.gpu_room import GpuRoom
from orion.node_agent.parking.member import held
from orion.node_agent.parking.present import Present
from orion.node_agent.parking.view import Place


def tell(
    present: Present, away: bool, now: float, cards: Iterable[GpuRoom], save: Callable[[Iterable[str]], None]
) -> None:
    """Ask a tenant to leave, or let it back: all of its slots.

    Args:
        present: the tenant.
        away: whether it shall leave.
        now: in seconds.
        cards: of the tenant's GPUs.
        save: writes the state file after a change of these GPUs.
    """
    changed = [slot for slot in present.slots if slot.parking.ask(away)]
    if not changed:
        return
    if away and present.known.place is Place.HERE:
        for member in present.members:
            member.slot.parking.left_bytes = member.held
        present.known.left = {client: held(client) for client in present.clients}
        present.known.moves_bytes = sum(slot.parking.left_bytes for slot in present.slots)
    for room in cards:
        room.cramped.drop(present.clients)
    present.known.asked = now
    if away or present.known.place is not Place.HERE:
        present.known.move(Place.LEAVING if away else Place.RETURNING, now)
    save({slot.gpu for slot in changed})  # before the pages, so that the next agent repeats no number
    for slot in changed:
        slot.write_park()
    for client in present.clients:
        if client.slot in changed:
            client.let_stay(False)
            client.connection.send(messages.park())
