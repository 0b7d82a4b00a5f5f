"""Asks a tenant to leave, or lets it back.

The number of each wish is saved before it is written, so the next agent never repeats one. A client that has left says
so in its record, and the next agent asks it to stay away before it can see anything else (`keep_away`).

A slot may get its first process when others of its tenant have been asked to leave. It is asked, too, but its processes
stay until it is known whether the host's memory can hold what they have, as those do that join an asked slot.
"""

from collections.abc import Callable, Iterable

from orion.node_agent.clients import messages
from orion.node_agent.clients.client import is_going
from orion.node_agent.parking.gpu_room import GpuRoom
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
    joins = away and present.is_asked
    changed = [member for member in present.members if member.slot.parking.ask(away)]
    if not changed:
        return
    clients = [client for member in changed for client in member.clients]
    if joins or (away and present.known.place is Place.HERE):
        for member in changed:
            member.slot.parking.left_bytes = member.held
        present.known.moves_bytes = sum(member.slot.parking.left_bytes for member in changed)
        for client in () if joins else clients:
            client.shall_leave()
    for room in cards:
        room.cramped.drop(present.clients)
    present.known.asked = now
    if away or present.known.place is not Place.HERE:
        present.known.move(Place.LEAVING if away else Place.RETURNING, now)
    save({member.slot.gpu for member in changed})  # before the pages, so that the next agent repeats no number
    for client in clients if joins else ():
        client.let_stay(not is_going(client))
    for member in changed:
        member.slot.write_park()
    for client in clients:
        client.let_stay(client.stays and joins)
        client.connection.send(messages.park())
