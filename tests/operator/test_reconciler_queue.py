"""The queue returns each object once, when it is due, to one worker at a time, and delays failed objects."""

import asyncio

import pytest

from orion.operator.reconciler.work_queue import WorkQueue
from tests.waiting import DEADLINE


async def taken(queue: WorkQueue[str], within: float = 5.0) -> str:
    return await asyncio.wait_for(queue.take(), within)


async def nothing_to_take(queue: WorkQueue[str]) -> bool:
    try:
        await asyncio.wait_for(queue.take(), 0.05)
    except TimeoutError:
        return True
    return False


async def test_an_object_that_is_added_often_is_returned_once() -> None:
    queue = WorkQueue[str]()
    queue.add(["a", "a"])
    queue.add(["a"])
    assert await taken(queue) == "a"
    queue.done("a")
    assert len(queue) == 0
    assert await nothing_to_take(queue)


async def test_an_object_that_is_added_while_a_worker_has_it_is_returned_again() -> None:
    queue = WorkQueue[str]()
    queue.add(["a"])
    assert await taken(queue) == "a"
    queue.add(["a"])
    assert await nothing_to_take(queue)
    queue.done("a")
    assert await taken(queue) == "a"
    assert len(queue) == 1  # a worker still has the object


async def test_an_object_that_is_added_twice_is_due_at_the_earlier_time() -> None:
    queue = WorkQueue[str]()
    queue.add(["a"], 600)
    queue.add(["b"], 600)
    assert await nothing_to_take(queue)
    queue.add(["a"])
    queue.add(["a"], 300)
    assert await taken(queue) == "a"
    queue.done("a")
    assert len(queue) == 1  # only b: a was added with an earlier time and has been taken


async def test_an_object_that_is_due_when_an_outdated_entry_was_is_returned_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Objects that wait until a fixed time are often added for it; two of these times may be equal to the bit."""
    queue, loop = WorkQueue[str](), asyncio.get_running_loop()
    began = loop.time()
    with monkeypatch.context() as stopped:
        stopped.setattr(loop, "time", lambda: began)
        queue.add(["a"], 0.01)
        queue.add(["a"])
        assert await queue.take() == "a"
        queue.add(["a"], 0.01)
        queue.done("a")
    assert await taken(queue) == "a"
    queue.done("a")
    assert await nothing_to_take(queue)
    assert len(queue) == 0


async def test_a_waiting_worker_wakes_for_an_earlier_object() -> None:
    queue = WorkQueue[str]()
    queue.add(["late"], 600)
    worker = asyncio.create_task(taken(queue))
    await asyncio.sleep(0)
    queue.add(["now"])
    assert await worker == "now"


async def test_the_delay_grows_with_failures_up_to_a_minute() -> None:
    queue = WorkQueue[str]()
    delays = []
    for _ in range(12):
        queue.add(["a"])
        assert await taken(queue) == "a"
        delays.append(queue.failed("a"))
    assert delays[:4] == pytest.approx([0.2, 0.4, 0.8, 1.6])
    assert delays[-1] == 60
    queue.add(["a"])
    await taken(queue)
    queue.done("a")
    queue.add(["a"])
    await taken(queue)
    assert queue.failed("a") == pytest.approx(0.2)


async def test_many_workers_process_every_object() -> None:
    queue, seen = WorkQueue[int](), []

    async def work() -> None:
        while True:
            key = await queue.take()
            await asyncio.sleep(0)
            seen.append(key)
            queue.done(key)

    workers = [asyncio.create_task(work()) for _ in range(8)]
    queue.add(range(500))
    async with asyncio.timeout(DEADLINE):
        while len(seen) < 500:
            await asyncio.sleep(0.01)
    for worker in workers:
        worker.cancel()
    assert sorted(seen) == list(range(500))


async def test_groups_take_turns() -> None:
    queue = WorkQueue[str](lambda key: key[0])
    queue.add(["a1", "a2", "a3", "a4"])
    queue.add(["b1", "b2"])
    queue.add(["c1"])
    assert [await taken(queue) for _ in range(7)] == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


@pytest.mark.parametrize("between", range(6))
async def test_a_worker_that_is_cancelled_while_objects_arrive_ends(between: int) -> None:
    """In Python 3.11, asyncio.wait_for loses a cancellation that comes together with the result."""
    queue = WorkQueue[str]()
    queue.add(["late"], 600)

    async def work() -> None:
        while True:
            queue.done(await queue.take())

    workers = [asyncio.create_task(work()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.add(["now"])
    for _ in range(between):
        await asyncio.sleep(0)
    for worker in workers:
        worker.cancel()
    _, pending = await asyncio.wait(workers, timeout=DEADLINE)
    for worker in pending:
        worker.cancel()
    assert not pending


async def test_an_object_wakes_one_of_the_waiting_workers() -> None:
    """Woken in vain, each of the other workers costs as much as a reconciliation."""
    queue = WorkQueue[str]()
    workers = [asyncio.create_task(queue.take()) for _ in range(16)]
    await asyncio.sleep(0)
    looked = 0
    ready = queue._next

    def look() -> str:
        nonlocal looked
        looked += 1
        return ready()

    queue._next = look  # type: ignore[method-assign]
    queue.add(["a"])
    done, waiting = await asyncio.wait(workers, timeout=DEADLINE, return_when=asyncio.FIRST_COMPLETED)
    assert [each.result() for each in done] == ["a"]
    assert (looked, len(queue._waiting)) == (1, 15)
    for worker in waiting:
        worker.cancel()


async def test_all_waiting_workers_get_objects_that_become_due_together() -> None:
    queue = WorkQueue[int]()
    workers = [asyncio.create_task(queue.take()) for _ in range(4)]
    await asyncio.sleep(0)
    queue.add(range(4), 0.01)
    assert sorted(await asyncio.wait_for(asyncio.gather(*workers), DEADLINE)) == [0, 1, 2, 3]


async def test_an_object_is_not_lost_with_the_worker_that_was_woken_for_it() -> None:
    queue = WorkQueue[str]()
    first, second = (asyncio.create_task(queue.take()) for _ in range(2))
    await asyncio.sleep(0)
    queue.add(["a"])
    queue._make_ready()  # wakes the first worker, which has not run yet
    first.cancel()
    assert await asyncio.wait_for(second, DEADLINE) == "a"
    assert first.cancelled()
