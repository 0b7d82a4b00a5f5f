"""Turns are long while the memory of slots moves with them, and usual otherwise."""

from types import SimpleNamespace
from typing import Any

import pytest

from orion.node_agent.sharing.demand import Demand
from orion.node_agent.sharing.moving import MOST_NS, TURN_NS, shortest_average_ns
from orion.node_agent.sharing.turns import Turns
from orion.node_agent.slots.memory_sharing import MemorySharing

GIB = 1 << 30
MS = 1_000_000


def client(slot: str, gib: int, *, unified: bool = False, ready: bool = True, limit_gib: int = 0) -> Any:
    sharing = MemorySharing(unified=unified)
    return SimpleNamespace(
        ready=ready,
        uncounted_mib=64,
        slot=SimpleNamespace(
            name=slot, memory_sharing=sharing, grant=SimpleNamespace(memory_limit_bytes=limit_gib * GIB)
        ),
        record=SimpleNamespace(memory_mib=gib << 10),
    )


@pytest.mark.parametrize(
    ("gpu_gib", "clients", "moves"),
    [
        (5, [client("a", 3, unified=True), client("b", 3, unified=True)], True),
        (6, [client("a", 3, unified=True), client("b", 3, unified=True)], True),
        (7, [client("a", 3, unified=True), client("b", 3, unified=True)], False),
        (5, [client("a", 3), client("b", 3, unified=True)], True),
        (5, [client("a", 3), client("b", 3)], False),
        (5, [client("a", 3, unified=True), client("b", 3, ready=False)], False),
        (5, [client("a", 3, unified=True), client("hp", 3)], True),
        (5, [client("a", 3), client("away", 3, unified=True)], False),
        (0, [client("a", 3, unified=True), client("b", 3, unified=True)], False),
    ],
)
def test_turns_are_long_while_the_memory_of_slots_that_want_them_does_not_fit(
    gpu_gib: int, clients: list[Any], moves: bool
) -> None:
    assert shortest_average_ns(gpu_gib * GIB, clients, {"a", "b"}) == (TURN_NS if moves else 0)


def test_the_memory_of_the_largest_slot_can_come_and_leave_within_a_turn() -> None:
    two = [client("a", 10, unified=True), client("a", 5, unified=True), client("b", 6, unified=True)]
    drivers = 64 << 20
    assert shortest_average_ns(20 * GIB, two, {"a", "b"}) == 2 * (15 * GIB + 2 * drivers) // 25
    assert shortest_average_ns(20 * GIB, [*two, client("hp", 30)], {"b"}) == 2 * (6 * GIB + drivers) // 25
    assert shortest_average_ns(80 * GIB, [client("a", 70, unified=True), *two], {"a", "b"}) == MOST_NS


@pytest.mark.parametrize("unified", [False, True])
def test_what_a_client_says_beyond_its_slots_limit_makes_no_turn_longer(unified: bool) -> None:
    honest = [client("a", 2, unified=True, limit_gib=2), client("b", 2, unified=True, limit_gib=2)]
    liar = client("c", 1 << 30, unified=unified, limit_gib=1)
    assert shortest_average_ns(5 * GIB, [*honest, liar], {"a", "b", "c"}) == 0
    assert shortest_average_ns(4 * GIB, [*honest, liar], {"a", "b", "c"}) == TURN_NS


def test_what_a_client_without_a_limit_says_beyond_the_gpu_makes_turns_no_longer_than_the_gpu_could() -> None:
    liar = client("c", 1 << 30, unified=True)
    assert shortest_average_ns(8 * GIB, [client("a", 2, unified=True), liar], {"a", "c"}) == 2 * 8 * GIB // 25


def test_the_limit_of_a_slot_whose_memory_moves_may_exceed_the_gpu() -> None:
    large = client("a", 12, unified=True, limit_gib=12)
    assert shortest_average_ns(8 * GIB, [large], {"a"}) == 2 * 12 * GIB // 25


@pytest.mark.parametrize(("average_ms", "most_ms"), [(0, 700), (300, 3_000)])
def test_a_slot_may_wait_for_its_memory_for_a_turn_but_not_for_ever(average_ms: int, most_ms: int) -> None:
    turns, begin_ms = Turns(), 1_000
    demands = {"works": Demand(waiting=True, launched=True, reported_ns=MS), "waits": Demand(waiting=True)}
    for now_ms in range(begin_ms, begin_ms + 10_000, 50):
        turns.look(now_ms * MS, 1.0, demands, average_ns=average_ms * MS)
        if turns.accounts["waits"].progress.shut_until_ns:
            break
    assert 2 * average_ms < now_ms - begin_ms < most_ms


def test_each_slot_has_its_part_of_long_cycles() -> None:
    turns, had = Turns(), dict.fromkeys("abcde", 0)
    demands = {name: Demand(waiting=True, launched=True, reported_ns=MS) for name in had}
    for now_ms in range(1_000, 61_000, 70):
        turns.look(now_ms * MS, 1.0, demands, average_ns=300 * MS)
        for name, plan in turns.plans.items():
            had[name] += plan.time(now_ms * MS, (now_ms + 70) * MS)
    assert max(had.values()) < 1.1 * min(had.values())


@pytest.mark.parametrize("rest", [{}, {"a": Demand(clients=0)}, {"a": Demand()}], ids=["ended", "has a limit", "idle"])
def test_a_turn_of_a_slot_that_wants_nothing_any_more_ends_with_the_next_check(rest: dict[str, Demand]) -> None:
    """Its process was killed, or is stopped, and has handed nothing back; turns last for seconds where memory moves."""
    turns, now, works = Turns(), 1_000_000 * MS, Demand(launched=True, waiting=True, reported_ns=MS)
    while now < 1_005_000 * MS or not turns.plans["a"].has_turn(now):
        turns.look(now, 1.0, dict.fromkeys("abc", works), average_ns=2_000 * MS)
        now += 25 * MS
    for _ in range(6):
        turns.look(now, 1.0, {"b": works, "c": works} | rest, average_ns=2_000 * MS)
        now += 25 * MS
    assert any(turns.plans[name].has_turn(now) for name in "bc")
