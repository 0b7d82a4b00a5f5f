"""Runs in a thread what must not go on after its caller."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def run_to_end(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run a function in a thread. If the caller is cancelled, the cancellation waits until the function has ended.

    A thread cannot be cancelled. `asyncio.to_thread` lets a cancelled caller give its locks back while the function
    still writes to the disk, and the next who takes them works beside it.
    """
    future = asyncio.get_running_loop().run_in_executor(None, lambda: function(*args, **kwargs))
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return future.result()
    future.exception()  # else asyncio logs that nobody has seen it
    raise cancelled
