"""Doing something again and again though it may fail: one bad time must not be the last.

A failure that nobody expected is logged with its stack when it begins, and when it is over. Where something is done ten
times a second, the same stack each time would fill the node's disk and hide what came before.
"""

import asyncio
import inspect
import logging
import traceback
from collections.abc import Callable
from types import TracebackType

_log = logging.getLogger(__name__)


class Tolerating:
    """Stands around each attempt, and lets no failure through; cancellation is none.

    Args:
        what: is attempted, for the log.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._failure: tuple[object, ...] = ()
        """ What failed last time, and where; empty: nothing. """

    def __enter__(self) -> None:
        """Begin an attempt."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> bool:
        """End it."""
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
            _log.error("%s failed, and is attempted again", self._what, exc_info=error)
        self._failure = failure
        return True


async def periodically(what: str, seconds: float, do: Callable[[], object]) -> None:
    """Do something until cancelled, with a rest after each time.

    Args:
        what: is done, for the log.
        seconds: to rest.
        do: does it; what it returns is awaited if it can be.
    """
    tolerating = Tolerating(what)
    while True:
        with tolerating:
            done = do()
            if inspect.isawaitable(done):
                await done
        await asyncio.sleep(seconds)
