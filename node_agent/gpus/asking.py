"""Threads for calls into a driver. A driver that hangs blocks its thread, not the event loop or the exit.

The module does not use the pool of concurrent.futures: Python joins the pool's threads at exit, so a hanging driver
would block the exit.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from orion.node_agent.pacing.tolerating import Tolerating

Answer = TypeVar("Answer")


class AskingThread:
    """Runs one call after the other in its own thread.

    Args:
        name: the thread's name.
    """

    def __init__(self, name: str) -> None:
        self._questions: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._answer, name=name, daemon=True).start()

    def submit(self, ask: Callable[..., Answer], *arguments: Any) -> Future[Answer]:
        """Queue a call; the future gets its result or exception."""
        future: Future[Answer] = Future()

        def answer() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(ask(*arguments))
            except BaseException as error:  # the future passes it to the caller
                future.set_exception(error)

        self._questions.put(answer)
        return future

    def close(self) -> None:
        """End the thread after the queued calls; does not wait."""
        self._questions.put(None)

    def _answer(self) -> None:
        while (question := self._questions.get()) is not None:
            question()


class AskingThreads:
    """One thread for each GPU: a call about one GPU that hangs delays no call about another.

    Args:
        name: the threads' name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._threads: dict[str, AskingThread] = {}

    def of(self, uuid: str) -> AskingThread:
        """Return the thread for calls about a GPU."""
        if uuid not in self._threads:
            self._threads[uuid] = AskingThread(self._name)
        return self._threads[uuid]

    def close(self) -> None:
        """End the threads after the queued calls; does not wait."""
        for thread in self._threads.values():
            thread.close()


@dataclass(frozen=True)
class _Question(Generic[Answer]):
    answer: asyncio.Future[Answer]
    late: float
    """ From when on nobody waits for the answer, in monotonic seconds. """


class Questions(Generic[Answer]):
    """Questions about each GPU, asked in turn. One that hangs, or fails, delays none about another GPU.

    Args:
        name: what is asked for, as the threads and the log say it.
        seconds: how long to wait for answers.
        threads: ask, also for others; None: it has its own.
    """

    def __init__(self, name: str, seconds: float, threads: AskingThreads | None = None) -> None:
        self._name, self._seconds = name, seconds
        self._shares_threads, self._threads = threads is not None, threads or AskingThreads(name)
        self._open: dict[str, _Question[Answer]] = {}
        """ The questions to which nobody has taken the answer yet, by GPU. """
        self._tolerating: dict[str, Tolerating] = {}

    async def ask(self, questions: Mapping[str, Callable[[], Answer]]) -> dict[str, Answer]:
        """Ask about each GPU about which no question is open; return the answers that have come, by GPU."""
        answers, now = self._take(self._open), time.monotonic()
        for uuid in questions.keys() - self._open.keys():
            future = asyncio.wrap_future(self._threads.of(uuid).submit(questions[uuid]))
            self._open[uuid] = _Question(future, now + self._seconds)
        asked = {uuid: self._open[uuid] for uuid in questions}  # another caller may take them from `_open`
        late = max((each.late for each in asked.values()), default=now)
        if late > now:  # an answer that is late already is not waited for again
            waited = [each.answer for each in asked.values() if each.late > now]
            await asyncio.wait(waited, timeout=late - now)
        return answers | self._take(asked)

    def is_open(self, uuid: str) -> bool:
        """Return whether nobody has taken the answer to the last question about a GPU yet."""
        return uuid in self._open

    def _take(self, asked: Mapping[str, _Question[Answer]]) -> dict[str, Answer]:
        answers = {}
        for uuid, question in [(uuid, each) for uuid, each in asked.items() if each.answer.done()]:
            if self._open.get(uuid) is question:
                del self._open[uuid]
            with self._tolerating.setdefault(uuid, Tolerating(f"{uuid}: asking for {self._name}")):
                answers[uuid] = question.answer.result()
        return answers

    def close(self) -> None:
        """End its own threads after the queued calls; does not wait. Threads that others share go on."""
        if not self._shares_threads:
            self._threads.close()
