"""The end of a service: by SIGTERM or SIGINT, and in bounded time whatever does not answer.

A service waits at its end: for tasks, connections, threads, a last request. Each of these waits has a limit of its own,
and each can miss it: a task loses its cancellation, code blocks the event loop, Python joins a thread at its exit. So a
thread counts from the signal on. If the process is still there when the thread has counted to the end, the process says
what did not stop, and ends. Kubernetes would kill it a little later, without a word.

Rejected: a limit within the event loop, such as kopf's. It never comes if the loop is blocked or has ended. Rejected:
`faulthandler.dump_traceback_later`. It does not know tasks.

This package is below all others and imports only the standard library.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from types import FrameType

SHUTDOWN_S = 20.0
""" How long the end of a service may take. Kubernetes kills it later, after terminationGracePeriodSeconds. """
_STEPS = 100

_log = logging.getLogger(__name__)


class Shutdown:
    """The end of this process. Create it inside the event loop that runs the service.

    Args:
        seconds: how long the end may take. Then the process ends itself with status 1.
    """

    def __init__(self, seconds: float = SHUTDOWN_S) -> None:
        self._seconds, self._begun = seconds, asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def handle_signals(self) -> None:
        """From now on, SIGTERM and SIGINT begin the end."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.begin)

    async def wait(self) -> None:
        """Return once the end has begun."""
        await self._begun.wait()

    def begin(self) -> None:
        """Begin the end, if it has not begun."""
        if not self._begun.is_set():
            self._begun.set()
            threading.Thread(target=self._end_in_time, name="shutdown", daemon=True).start()

    def _end_in_time(self) -> None:
        for _ in range(_STEPS):  # a machine that was suspended has passed one step, not the whole time
            time.sleep(self._seconds / _STEPS)
        try:
            _log.critical(
                "the process has not ended within %g s and ends itself; what did not stop: %s",
                self._seconds,
                "; ".join([*self._tasks(), *_threads()]),
            )
        finally:
            os._exit(1)

    def _tasks(self) -> list[str]:
        return sorted(f"task {_name(task)}" for task in asyncio.all_tasks(self._loop))


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
