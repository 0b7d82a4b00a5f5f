"""Turns of peers: each waits for its own, and one that is cancelled passes on."""

import asyncio
import contextlib
import itertools

import pytest

from orion.operator.listening.turns import Turns


async def test_peers_take_turns() -> None:
    turns, seen = Turns[str](), []

    async def ask(peer: str, number: int) -> None:
        async with turns.turn(peer):
            seen.append(f"{peer}{number}")

    await asyncio.gather(*(ask("a", each) for each in range(4)), *(ask("b", each) for each in range(2)), ask("c", 0))
    assert seen == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]


async def test_a_pause_follows_each_turn() -> None:
    loop, began = asyncio.get_running_loop(), []
    turns = Turns[str](lambda _: 0.02)

    async def ask() -> None:
        async with turns.turn("a"):
            began.append(loop.time())

    await asyncio.gather(ask(), ask(), ask())
    assert all(second - first >= 0.02 for first, second in itertools.pairwise(began))


@pytest.mark.parametrize("given", [False, True], ids=["waiting", "in the moment of its turn"])
async def test_a_turn_that_is_cancelled_is_the_next_ones(given: bool) -> None:
    turns = Turns[str]()
    async with turns.turn("a"):
        first = asyncio.create_task(_take(turns))
        second = asyncio.create_task(_take(turns))
        await asyncio.sleep(0)
        if not given:
            first.cancel()
    if given:
        turns._next()
        first.cancel()
    assert await second
    with contextlib.suppress(asyncio.CancelledError):
        await first


async def _take(turns: Turns[str]) -> bool:
    async with turns.turn("a"):
        return True
