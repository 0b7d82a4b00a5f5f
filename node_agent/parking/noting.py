"""Notes the result of a decision.

It concerns tenants that should leave and do not, or could come back and find no room, and clients that wait for room.
"""

from collections.abc import Iterable, Mapping

from orion.node_agent.clients import messages
from orion.node_agent.parking.gpu_room import GpuRoom
from orion.node_agent.parking.host_room import Joined
from orion.node_agent.parking.keeping_room import who_keep_room
from orion.node_agent.parking.known import HOST_MEMORY_SHORT
from orion.node_agent.parking.present import Present
from orion.node_agent.parking.view import Place, View, Wishes


def note_who_stay(
    now: float,
    view: View,
    wishes: Wishes,
    short: Mapping[str, str],
    present: Mapping[str, Present],
    retry_seconds: float,
) -> None:
    """Note which tenants should leave and do not, and why not, and which find no room to come back.

    Args:
        now: in seconds.
        view: what was decided upon.
        wishes: the decision.
        short: who does not fit into the host's memory, by name, and why: a sentence.
        present: all tenants, by name.
        retry_seconds: after how long a tenant that refused is asked again.
    """
    here = {each.name: present[each.name] for each in view.tenants}
    for name, why in short.items():
        here[name].known.refuse(now, here[name].clients, retry_seconds, (HOST_MEMORY_SHORT, why))
    due = {name for name, each in here.items() if each.known.is_due(now, retry_seconds)}
    keep = who_keep_room(
        view,
        wishes,
        due,
        keeping={name for name in due if here[name].known.keeps_room},
        staying={name for name in due if not here[name].may_be_evicted},
    )
    for name, each in here.items():
        each.known.note_need(now, retry_seconds, name in keep)
        each.known.note_stuck(now, retry_seconds, name in wishes.stuck)


def note_joined(now: float, joined: Iterable[Joined], retry_seconds: float) -> None:
    """Let processes that have joined leaving tenants leave, too, or note why they cannot.

    Args:
        now: in seconds.
        joined: these processes.
        retry_seconds: after how long the host's memory is looked at again.
    """
    for present, clients, short in joined:
        if short:
            present.known.refuse(now, clients, retry_seconds, (HOST_MEMORY_SHORT, short))
            continue
        for client in clients:
            client.let_stay(False)
            client.connection.send(messages.park())
        for member in present.members:
            if not set(clients).isdisjoint(member.clients):
                member.slot.parking.left_bytes = max(member.held, member.slot.parking.left_bytes)


def keep_untaken(now: float, tenants: Iterable[Present], cards: Mapping[str, GpuRoom]) -> None:
    """Keep the room for which tenants have come back until they have had the time to take it.

    Args:
        now: in seconds.
        tenants: some of them may have come back.
        cards: all GPUs.
    """
    for present in tenants:
        for uuid, size in present.known.take_untaken().items():
            clients = [each for each in present.clients if each.slot.gpu == uuid]
            if clients and cards[uuid].cramped.waiting().keys().isdisjoint(clients):  # else one has asked again
                cards[uuid].cramped.give(clients[0], size, now)


def note_result(
    asked: float, view: View, wishes: Wishes, present: Mapping[str, Present], cards: Mapping[str, GpuRoom]
) -> None:
    """Let the clients that wait for room know what has been decided; not that there will be none while others return.

    Args:
        asked: when the driver was asked before the decision, in seconds.
        view: what was decided upon.
        wishes: the decision.
        present: all tenants, by name.
        cards: all GPUs.
    """
    # Who is coming back may have taken its room already, which then counts twice.
    returning = {uuid for each in view.tenants if each.place is Place.RETURNING for uuid in each.held}
    sure = {uuid for uuid in view.cards if cards[uuid].is_settled} - returning
    helpless = {client for name in wishes.helpless for client in present[name].clients if client.slot.gpu in sure}
    for uuid, card in view.cards.items():
        coming = max(0, sum(each.coming.get(uuid, 0) for each in view.tenants) - card.restored)
        coming += sum(each.held.get(uuid, 0) for each in view.tenants if each.name in wishes.back) + cards[uuid].unseen
        cards[uuid].announce(coming)
        hopeless, unpayable = uuid in wishes.hopeless & sure, uuid in wishes.unpayable & sure
        cards[uuid].decided(asked, coming, card, hopeless, unpayable, helpless)
