"""The end of a service: by SIGTERM or SIGINT, and in bounded time whatever does not answer.

A service waits at its end: for tasks, connections, threads, a last request. Each of these waits has a limit of its own,
and each can miss it: a task loses its cancellation, code blocks the event loop, Python joins a thread at its exit. So a
thread counts from the signal on. If the process is still there when the thread has counted to the end, the process says
what did not stop, and ends. Kubernetes would kill it a little later, without a word. A main thread that stays in C
code sees no signal; then only Kubernetes ends the process.

Rejected: a limit within the event loop, such as kopf's. It never comes if the loop is blocked or has ended. Rejected:
`faulthandler.dump_traceback_later`. It does not know tasks.

This package is below all others and imports only the standard library.
"""

import _thread
import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

SHUTDOWN_S = 20.0
""" How long the end of a service may take. Kubernetes kills it later, after terminationGracePeriodSeconds. """
_STEPS = 100
_SAYING_S = 2.0
""" How long the last words may take: what did not stop may hold the log's lock, and nobody may read the log. """

_log = logging.getLogger(__name__)


class Shutdown:
    """The end of this process. Create it inside the event loop that runs the service.

    Args:
        seconds: how long the end may take. Then the process ends itself with status 1.
    """

    def __init__(self, seconds: float = SHUTDOWN_S) -> None:
        self._seconds, self._signalled = seconds, asyncio.Event()
        self._counts = self._ends_itself = False
        self._loop = asyncio.get_running_loop()

    def handle_signals(self) -> None:
        """From now on, SIGTERM and SIGINT begin the end. Call it in the main thread, and again after kopf's start."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._signalled.set)
            signal.signal(number, self._count)  # runs also while the loop is blocked

    async def wait(self) -> None:
        """Return once a signal has come."""
        await self._signalled.wait()

    async def run(self, service: Coroutine[Any, Any, None], last_words: str = "") -> None:
        """Run a service until it ends, or until SIGTERM or SIGINT; then cancel it, and wait until it has ended.

        Args:
            service: what to run. If it has called `begin`, a signal does not cancel it any more.
            last_words: what the log says when a signal ends the service.

        Raises:
            Exception: what ended the service.
        """
        self.handle_signals()
        serving, waiting = asyncio.create_task(service), asyncio.create_task(self.wait())
        try:
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if last_words and self._signalled.is_set():
                _log.info(last_words)
        finally:
            waiting.cancel()
            if not self._ends_itself:
                serving.cancel()
            self.begin()
            await asyncio.wait({serving})
        if not (serving.cancelled() and self._signalled.is_set()):
            serving.result()

    def begin(self) -> None:
        """Begin the end without a signal, if it has not begun."""
        self._ends_itself = True
        self._count()

    def _count(self, *_: object) -> None:
        """Start to count. A signal may interrupt code that holds the locks of `threading`, so this takes none."""
        if not self._counts:
            self._counts = True
            _thread.start_new_thread(_end_after, (self._seconds, self._say_what_remains))
            _thread.start_new_thread(_end_after, (self._seconds + _SAYING_S, lambda: None))

    def _say_what_remains(self) -> None:
        _log.critical(
            "the process has not ended within %g s and ends itself; what did not stop: %s",
            self._seconds,
            "; ".join([*self._tasks(), *_threads()]),
        )

    def _tasks(self) -> list[str]:
        return sorted(f"task {_name(task)}" for task in asyncio.all_tasks(self._loop))


def _end_after(seconds: float, last: Callable[[], None]) -> None:
    for _ in range(_STEPS):  # a machine that was suspended has passed one step, not the whole time
        time.sleep(seconds / _STEPS)
    try:
        last()
    finally:
        os._exit(1)


def _name(task: "asyncio.Task[object]") -> str:
    frames = task.get_stack(limit=1)
    name = getattr(task.get_coro(), "__qualname__", task.get_name())
    return f"{name} ({_place(frames[0])})" if frames else name


def _threads() -> list[str]:
    """Return where each thread is that Python waits for at its exit; the main thread first."""
    frames = sys._current_frames()
    threads = [each for each in threading.enumerate() if not each.daemon and each.ident in frames]
    return [f"{each.name} in {_place(frames[each.ident])}" for each in threads if each.ident is not None]


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_name}, {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
