"""A thread to ask a driver from: one that hangs keeps this thread, and neither the event loop nor the agent's end.

Refused: concurrent.futures' own pool, whose threads Python waits for when the process is to end, for as long as the
driver hangs.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class AskingThread:
    """Asks one thing after the other.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._questions: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._answer, name=name, daemon=True).start()

    def submit(self, ask: Callable[..., Answer], *arguments: Any) -> Future[Answer]:
        """Ask something; the answer, or what was raised, comes with the future."""
        future: Future[Answer] = Future()

        def answer() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(ask(*arguments))
            except BaseException as error:  # whoever asked has it
                future.set_exception(error)

        self._questions.put(answer)
        return future

    def close(self) -> None:
        """Ask no more, once what was asked is answered; does not wait for it."""
        self._questions.put(None)

    def _answer(self) -> None:
        while (question := self._questions.get()) is not None:
            question()
