"""Who wakes the loop of parking all the time does not keep the agent busy, and hp does not wait for its rest."""

import asyncio
import time

import pytest

from orion.node_agent.parking import waking as module
from orion.node_agent.parking.waking import Waking


async def look_all_the_time(waking: Waking, looks: int, *, hp_waits: bool) -> tuple[float, float]:
    """Look as often as somebody wants it who always does; return how long the looks took, and all of it."""
    looked, began = 0.0, time.monotonic()
    for _ in range(looks):
        waking.begin()
        begin = time.monotonic()
        await asyncio.sleep(0.01)
        looked += time.monotonic() - begin
        waking.wake()
        await waking.wait(1.0, hp_waits)
    return looked, time.monotonic() - began


def test_who_wakes_it_all_the_time_has_it_look_for_a_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REST_MOST_SECONDS", 1e9)  # a look of the test may last long on a busy machine
    looked, passed = asyncio.run(look_all_the_time(Waking(), 5, hp_waits=False))
    assert looked < passed / 4


def test_it_does_not_rest_while_hp_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REST_TIMES", 1e9)
    monkeypatch.setattr(module, "_REST_MOST_SECONDS", 1e9)
    asyncio.run(asyncio.wait_for(look_all_the_time(Waking(), 5, hp_waits=True), 60))


def test_hp_ends_its_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REST_TIMES", 1e9)
    monkeypatch.setattr(module, "_REST_MOST_SECONDS", 1e9)

    async def run() -> None:
        waking = Waking()
        waking.begin()
        await asyncio.sleep(0.001)
        waking.wake()
        asyncio.get_running_loop().call_later(0.01, lambda: waking.look_soon(for_hp=True))
        await asyncio.wait_for(waking.wait(None, hp_waits=False), 60)
        assert waking.begin()

    asyncio.run(run())
