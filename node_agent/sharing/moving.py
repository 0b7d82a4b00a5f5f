"""How long turns are where the memory of slots moves with them (`unified`).

With each turn the memory of its slot comes to the GPU (hook/src/memory/pager.h), and that of another one leaves. A
copy of 5 GB takes about 0.1 s, and usual turns last some milliseconds. So turns are longer while the slots' memory does
not fit together; else all of the time would go into copies. The length is about that of Gemini's quota, 0.3 s.
"""

from collections.abc import Collection, Iterable

from orion.node_agent.clients.client import Client

TURN_NS = 300_000_000
""" The average turn while memory moves. """


def shortest_average_ns(gpu_bytes: int, clients: Iterable[Client], wanting: Collection[str]) -> int:
    """Return how long turns are at least on average; 0: as usual.

    Args:
        gpu_bytes: the memory of the GPU; 0: unknown.
        clients: of the GPU.
        wanting: the slots that take turns.
    """
    held, moving = 0, False
    for client in clients:
        if client.ready:
            held += client.record.memory_mib
            moving |= client.slot.name in wanting and client.slot.memory_sharing.unified
    return TURN_NS if moving and gpu_bytes and held << 20 > gpu_bytes else 0
