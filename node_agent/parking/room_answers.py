"""Answers a client whose allocation found no room on its GPU, although the client's credit suffices.

A client asks also before an allocation while others come back, so that it takes none of their room. One of a be slot
that does not park gets then what is free beside the others. It cannot leave to wait for its turn, so no more is made
free for it: it waits until the others are back, and then takes what it finds. For what the slot is sure of and others
have borrowed it waits at all times.
"""

import time
from collections.abc import Collection, Iterable
from enum import Enum

from orion.hook import layout
from orion.hook.join import CreditAnswer
from orion.node_agent.clients.client import Client
from orion.node_agent.parking.gpu_room import GpuRoom
from orion.node_agent.parking.present import Present
from orion.node_agent.parking.view import Place
from orion.node_agent.slots.slot import Slot


class Wait(Enum):
    """How long the next decision may wait."""

    AS_USUAL = "as usual"
    NOT_AT_ALL = "not at all"
    SHORTLY = "shortly"
    """ For a moment, so that a tenant cannot keep the agent busy. """


def answer(client: Client, size: int, room: GpuRoom, tenants: Collection[Present]) -> tuple[CreditAnswer, Wait]:
    """Answer a client, and note what it waits for.

    Args:
        client: that asks.
        size: of the allocation, in bytes.
        room: of its GPU.
        tenants: all that have slots on its GPU.
    """
    is_hp = client.role is layout.Role.HP
    parks = client.slot.memory_sharing.parks
    may_wait = client.slot.grant.memory_wait_ns or (not is_hp and (parks or room.returning))
    if not may_wait or not room.is_granted(client, size):
        return CreditAnswer.NO, Wait.AS_USUAL
    now = time.monotonic()
    if not is_hp and not parks:
        is_sure = _is_sure(client.slot, size, tenants)
        if room.returning and _fits_beside_returns(client, size, room, tenants, is_sure, now):
            return CreditAnswer.YES, Wait.AS_USUAL
        if not is_sure:
            return CreditAnswer.LATER if room.returning else CreditAnswer.NO, Wait.AS_USUAL
    elif not is_hp and any(each.known.place is not Place.HERE and client.slot in each.slots for each in tenants):
        return CreditAnswer.LATER, Wait.AS_USUAL
    if is_hp:
        wishes, free = room.wishes, room.free_for_hp
    else:
        wishes, free = (room.cramped, room.free_for_tenants) if parks else (room.owed, room.free_for_owed)
    wish, is_new = wishes.note(client, size, now, may_be_first=bool(room.returning))
    wait = (Wait.NOT_AT_ALL if is_hp else Wait.SHORTLY) if is_new else Wait.AS_USUAL
    return wishes.answer(wish, free, now), wait


def _fits_beside_returns(
    client: Client, size: int, room: GpuRoom, tenants: Collection[Present], is_sure: bool, now: float
) -> bool:
    """Return whether a client of a slot that does not park may have an allocation at once while others come back.

    Also one that is sure of it: the slot may have got its first process, or its request, after they were let back.
    """
    if not room.unseen and not any(each.known.place is Place.RETURNING for each in tenants):
        return True
    free, kept = room.free_for_tenants, room.cramped.kept()
    if is_sure:
        free, kept = room.free_for_owed, kept + room.owed.kept()
    if free is None or free - kept < size:
        return False
    (room.owed if is_sure else room.cramped).give(client, size, now)
    room.spend(size)
    return True


def _is_sure(slot: Slot, size: int, tenants: Iterable[Present]) -> bool:
    """Return whether the slot is sure of an allocation, which counts as held already."""
    held = (member.held for each in tenants for member in each.members if member.slot is slot)
    return max([size, *held]) <= slot.memory_sharing.request_bytes
