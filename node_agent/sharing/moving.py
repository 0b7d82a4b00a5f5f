"""How long turns are where the memory of slots moves with them (`unified`).

With each turn the memory of its slot comes to the GPU (hook/src/memory/pager.h), and that of another one leaves. A
copy of 5 GB takes about 0.1 s, and usual turns last some milliseconds. So turns are longer while the slots' memory does
not fit together; else all of the time would go into copies. They last about as long as Gemini's quota, 0.3 s, and
longer where the largest slot's memory could not come and another one's leave within one turn, over a link of usual
speed. The hook knows by their length that memory moves.
"""

from collections import defaultdict
from collections.abc import Collection

from orion.node_agent.clients.client import Client, held_mib
from orion.node_agent.slots.slot import Slot

TURN_NS = 300_000_000
""" The average turn while memory moves. """
MOST_NS = 2_000_000_000
""" Others wait no longer for it. """
_LINK_BYTES_PER_NS = 25
""" Of a GPU at PCIe 4.0, in each direction. """


def shortest_average_ns(gpu_bytes: int, clients: Collection[Client], wanting: Collection[str]) -> int:
    """Return how long turns are at least on average; 0: as usual.

    Args:
        gpu_bytes: the memory of the GPU; 0: unknown.
        clients: of the GPU.
        wanting: the slots that take turns.
    """
    if not gpu_bytes or not any(client.slot.memory_sharing.unified for client in clients):
        return 0
    said, slots = defaultdict[str, int](int), dict[str, Slot]()
    for client in clients:
        if client.ready:
            said[client.slot.name] += held_mib(client) << 20
            slots[client.slot.name] = client.slot
    held = {name: min(said[name], _most(slot, gpu_bytes)) for name, slot in slots.items()}
    moving = [held[name] for name, slot in slots.items() if name in wanting and slot.memory_sharing.unified]
    if not moving or sum(held.values()) <= gpu_bytes:
        return 0
    return min(MOST_NS, max(TURN_NS, 2 * max(moving) // _LINK_BYTES_PER_NS))


def _most(slot: Slot, gpu_bytes: int) -> int:
    """Return what a slot's processes may hold, in bytes, whatever they say; memory that moves may exceed the GPU."""
    limit = slot.grant.memory_limit_bytes or gpu_bytes
    return limit if slot.memory_sharing.unified else min(limit, gpu_bytes)
