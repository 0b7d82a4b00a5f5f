"""Answers a client whose allocation found no room on its GPU, although the client's credit suffices."""

import time
from collections.abc import Iterable
from enum import Enum

from orion.hook import layout
from orion.hook.join import CreditAnswer
from orion.node_agent.clients.client import Client
from orion.node_agent.parking.gpu_room import GpuRoom
from orion.node_agent.parking.present import Present
from orion.node_agent.parking.view import Place


class Wait(Enum):
    """How long the next decision may wait."""

    AS_USUAL = "as usual"
    NOT_AT_ALL = "not at all"
    SHORTLY = "shortly"
    """ For a moment, so that a tenant cannot keep the agent busy. """


def answer(client: Client, size: int, room: GpuRoom, tenants: Iterable[Present]) -> tuple[CreditAnswer, Wait]:
    """Answer a client, and note what it waits for.

    Args:
        client: that asks.
        size: of the allocation, in bytes.
        room: of its GPU.
        tenants: all that have slots on its GPU.
    """
    is_hp = client.role is layout.Role.HP
    may_wait = client.slot.grant.memory_wait_ns if is_hp else client.slot.memory_sharing.parks
    if not may_wait or not room.is_granted(client, size):
        return CreditAnswer.NO, Wait.AS_USUAL
    if not is_hp and any(each.known.place is not Place.HERE and client.slot in each.slots for each in tenants):
        return CreditAnswer.LATER, Wait.AS_USUAL
    wishes, free = (room.wishes, room.free_for_hp) if is_hp else (room.cramped, room.free_for_tenants)
    now = time.monotonic()
    wish, is_new = wishes.note(client, size, now)
    wait = (Wait.NOT_AT_ALL if is_hp else Wait.SHORTLY) if is_new else Wait.AS_USUAL
    return wishes.answer(wish, free, now), wait
