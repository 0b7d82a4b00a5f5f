"""A fake of the thread that asks the driver: it answers at once, or never."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Answer(Future[Any]):
    """Counts who waits for it."""

    waiting = 0

    def add_done_callback(self, fn: Callable[[Future[None]], object]) -> None:
        self.waiting += 1
        super().add_done_callback(fn)


class Thread:
    """In place of the thread that asks the driver."""

    def __init__(self) -> None:
        self.hangs = False
        self.answers: list[Answer] = []

    def submit(self, ask: Callable[..., object], *arguments: Any) -> Answer:
        answer = Answer()
        self.answers.append(answer)
        if not self.hangs:
            answer.set_result(ask(*arguments))
        return answer
