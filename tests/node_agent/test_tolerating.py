"""A loop continues after failures, and logs when a failure begins and when it is over."""

import asyncio

import pytest

from orion.node_agent.pacing.tolerating import Tolerating, periodically


def attempt(tolerating: Tolerating, error: Exception | None) -> None:
    with tolerating:
        if error is not None:
            raise error


def test_a_failure_is_logged_when_it_begins_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    tolerating = Tolerating("the test")
    for number in range(3):
        attempt(tolerating, ValueError(f"number {number}"))
    assert caplog.text.count("the test failed") == 1
    assert "ValueError: number 0" in caplog.text
    attempt(tolerating, OSError("another"))
    assert caplog.text.count("the test failed") == 2
    for _ in range(2):
        attempt(tolerating, None)
    assert caplog.text.count("the test works again") == 1
    attempt(tolerating, OSError("another"))
    assert caplog.text.count("the test failed") == 3


def test_cancellation_is_no_failure() -> None:
    with pytest.raises(asyncio.CancelledError), Tolerating("the test"):
        raise asyncio.CancelledError


@pytest.mark.parametrize("awaited", [True, False])
async def test_the_loop_continues_after_a_failure(awaited: bool) -> None:
    times, enough = 0, asyncio.Event()

    def do() -> None:
        nonlocal times
        times += 1
        if times >= 5:
            enough.set()
        raise ValueError("each time")

    async def do_later() -> None:
        do()

    running = asyncio.create_task(periodically("the test", 0.0, do_later if awaited else do))
    await asyncio.wait_for(enough.wait(), 60)
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
