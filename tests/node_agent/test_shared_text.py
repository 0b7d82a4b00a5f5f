"""`SharedText` makes a text once for all callers that wait, and again for later callers."""

import asyncio
import itertools

import pytest

from orion.node_agent.metrics.exposition import SharedText


class Maker:
    """Makes a text when the test allows it; counts the calls."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = asyncio.Event()

    async def make(self) -> bytes:
        self.begun += 1
        number = self.begun
        await self.go.wait()
        return b"%d" % number


async def test_all_waiting_callers_share_one_text() -> None:
    maker = Maker()
    text = SharedText(maker.make)
    waiting = [asyncio.create_task(text.get()) for _ in range(100)]
    while not maker.begun:
        await asyncio.sleep(0)
    late = asyncio.create_task(text.get())
    await asyncio.sleep(0)
    maker.go.set()
    assert await asyncio.gather(*waiting, late) == [b"1"] * 101
    assert await text.get() == b"2"


async def test_a_caller_that_gives_up_does_not_affect_others() -> None:
    maker = Maker()
    text = SharedText(maker.make)
    first, second = asyncio.create_task(text.get()), asyncio.create_task(text.get())
    while not maker.begun:
        await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    maker.go.set()
    assert await second == b"1"


async def test_a_failure_reaches_all_waiting_callers_and_no_later_one() -> None:
    failures = 1

    async def make() -> bytes:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise OSError("once")
        return b"text"

    text = SharedText(make)
    found = await asyncio.gather(text.get(), text.get(), return_exceptions=True)
    assert [type(each) for each in found] == [OSError, OSError]
    assert await text.get() == b"text"


async def test_a_text_takes_at_most_half_of_the_time() -> None:
    loop = asyncio.get_running_loop()
    times: list[tuple[float, float]] = []

    async def make() -> bytes:
        began = loop.time()
        await asyncio.sleep(0.05)
        times.append((began, loop.time()))
        return b""

    text = SharedText(make)
    for _ in range(3):
        await text.get()
    for (began, ended), (later, _) in itertools.pairwise(times):
        assert later - ended >= (ended - began) * 0.99
