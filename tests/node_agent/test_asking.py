"""Questions to the driver about several GPUs, while it hangs or fails for one of them."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pytest

from orion.node_agent.gpus.asking import AskingThreads, Questions
from tests.waiting import DEADLINE


@pytest.fixture
def ends() -> Iterator[threading.Event]:
    """Set when the driver no longer hangs."""
    event = threading.Event()
    yield event
    event.set()


async def test_a_question_that_hangs_delays_none_about_another_gpu(ends: threading.Event) -> None:
    questions = Questions[int]("a test", 0.05)
    asked = 0

    def hangs() -> int:
        nonlocal asked
        asked += 1
        assert ends.wait(DEADLINE)
        return 7

    async def until_answered(uuid: str) -> int:
        async with asyncio.timeout(DEADLINE):
            while uuid not in (answers := await questions.ask({"a": hangs, "b": lambda: 5})):
                await asyncio.sleep(0)
            return answers[uuid]

    for _ in range(3):
        assert await until_answered("b") == 5
    assert asked == 1
    assert [questions.is_open(uuid) for uuid in "ab"] == [True, False]
    ends.set()
    assert await until_answered("a") == 7
    questions.close()


async def test_a_question_that_fails_takes_no_answer_about_another_gpu(caplog: pytest.LogCaptureFixture) -> None:
    questions = Questions[int]("a test", DEADLINE)

    def fails() -> int:
        raise OSError("broken")

    for ask, answers in ((fails, {"b": 5}), (fails, {"b": 5}), (lambda: 7, {"a": 7, "b": 5})):
        asked: dict[str, Callable[[], int]] = {"a": ask, "b": lambda: 5}
        assert await questions.ask(asked) == answers
    logged = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert logged == ["a: asking for a test failed; the agent tries again", "a: asking for a test works again"]
    assert await questions.ask({}) == {}
    questions.close()


async def test_a_question_whose_answer_came_late_is_asked_again_at_once(ends: threading.Event) -> None:
    questions = Questions[bool]("a test", 0.05)
    assert await questions.ask({"a": lambda: not ends.wait(DEADLINE)}) == {}
    ends.set()
    async with asyncio.timeout(DEADLINE):
        while not questions._open["a"].answer.done():
            await asyncio.sleep(0)
    questions._seconds = DEADLINE
    assert await questions.ask({"a": ends.is_set}) == {"a": True}
    questions.close()


async def test_questions_of_several_kinds_may_share_the_threads(ends: threading.Event) -> None:
    threads, order = AskingThreads("a test"), list[str]()
    first, second = (Questions[None](f"test {number}", DEADLINE, threads) for number in (1, 2))

    def slow() -> None:
        assert ends.wait(DEADLINE)
        order.append("first")

    asked = [first.ask({"a": slow}), second.ask({"a": lambda: order.append("second")})]
    running = [asyncio.create_task(each) for each in asked]
    while not (first.is_open("a") and second.is_open("a")):
        await asyncio.sleep(0)
    ends.set()
    assert await asyncio.gather(*running) == [{"a": None}] * 2
    assert order == ["first", "second"]
    threads.close()


async def test_the_end_of_some_questions_ends_no_threads_that_others_share() -> None:
    threads = AskingThreads("a test")
    first, second = (Questions[int](f"test {number}", DEADLINE, threads) for number in (1, 2))
    assert await first.ask({"a": lambda: 1}) == {"a": 1}
    first.close()
    second._seconds = 1.0  # what is asked of an ended thread is never answered
    assert await second.ask({"a": lambda: 2}) == {"a": 2}
    threads.close()


async def test_who_asks_beside_another_one_gets_the_same_answers(ends: threading.Event) -> None:
    questions, asked = Questions[bool]("a test", DEADLINE), list[str]()

    def ask(uuid: str) -> bool:
        asked.append(uuid)
        return ends.wait(DEADLINE)

    both = [asyncio.create_task(questions.ask({uuid: partial(ask, uuid) for uuid in "ab"})) for _ in range(2)]
    await asyncio.sleep(0)  # both have begun
    ends.set()
    assert await asyncio.gather(*both) == [{"a": True, "b": True}] * 2
    assert sorted(asked) == ["a", "b"]
    questions.close()


async def test_who_asks_beside_another_one_waits_no_longer_than_that_one(
    ends: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions, waits = Questions[bool]("a test", DEADLINE), list[float]()

    async def wait(_: Iterable[asyncio.Future[bool]], timeout: float) -> None:
        waits.append(timeout)

    monkeypatch.setattr(asyncio, "wait", wait)
    for _ in range(2):
        assert await questions.ask({"a": lambda: ends.wait(DEADLINE)}) == {}
    assert waits[1] < waits[0]
    assert waits[0] == pytest.approx(DEADLINE)
    ends.set()
    questions.close()
