"""Repeats a call that may fail: one failure must not end the loop.

This module logs an unexpected failure with its stack trace when it begins, and once more when it is over. A stack trace
at every failure of a call that runs ten times a second would fill the node's disk and hide earlier log lines.
"""

import asyncio
import inspect
import logging
import traceback
from collections.abc import Callable
from types import TracebackType

_log = logging.getLogger(__name__)


class Tolerating:
    """A context around each attempt that logs and suppresses its failure, but not a cancellation.

    Args:
        what: names the attempt in the log.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._failure: tuple[object, ...] = ()
        """ Type and place of the last failure; empty: the last attempt succeeded. """

    def __enter__(self) -> None:
        """Begin an attempt."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> bool:
        """End the attempt."""
        if error is None:
            if self._failure:
                _log.warning("%s works again", self._what)
            self._failure = ()
            return False
        if not isinstance(error, Exception):
            return False
        where = traceback.extract_tb(stack)[-1]
        failure = (kind, where.filename, where.lineno)
        if failure != self._failure:
            _log.error("%s failed; the agent tries again", self._what, exc_info=error)
        self._failure = failure
        return True


async def periodically(what: str, seconds: float, do: Callable[[], object]) -> None:
    """Call a function at intervals until cancelled.

    Args:
        what: names the call in the log.
        seconds: the pause after each call.
        do: the function; an awaitable result is awaited.
    """
    tolerating = Tolerating(what)
    while True:
        with tolerating:
            done = do()
            if inspect.isawaitable(done):
                await done
        await asyncio.sleep(seconds)
