"""Turns are long while the memory of slots moves with them, and usual otherwise."""

from types import SimpleNamespace
from typing import Any

import pytest

from orion.node_agent.sharing.moving import TURN_NS, shortest_average_ns
from orion.node_agent.slots.memory_sharing import MemorySharing

GIB = 1 << 30


def client(slot: str, gib: int, *, unified: bool = False, ready: bool = True) -> Any:
    sharing = MemorySharing(unified=unified)
    return SimpleNamespace(
        ready=ready,
        slot=SimpleNamespace(name=slot, memory_sharing=sharing),
        record=SimpleNamespace(memory_mib=gib << 10),
    )


@pytest.mark.parametrize(
    ("gpu_gib", "clients", "moves"),
    [
        (11, [client("a", 6, unified=True), client("b", 6, unified=True)], True),
        (12, [client("a", 6, unified=True), client("b", 6, unified=True)], False),
        (11, [client("a", 6), client("b", 6, unified=True)], True),
        (11, [client("a", 6), client("b", 6)], False),
        (11, [client("a", 6, unified=True), client("b", 6, ready=False)], False),
        (11, [client("a", 6, unified=True), client("hp", 6)], True),
        (11, [client("a", 6), client("away", 6, unified=True)], False),
        (0, [client("a", 6, unified=True), client("b", 6, unified=True)], False),
    ],
)
def test_turns_are_long_while_the_memory_of_slots_that_want_them_does_not_fit(
    gpu_gib: int, clients: list[Any], moves: bool
) -> None:
    assert shortest_average_ns(gpu_gib * GIB, clients, {"a", "b"}) == (TURN_NS if moves else 0)
