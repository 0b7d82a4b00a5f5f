"""Gives peers turns: however many requests of one peer wait, another peer waits for one of them.

One event loop does all work, so a turn is time on the loop. Between two turns the loop serves its sockets.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

P = TypeVar("P")


class Turns(Generic[P]):
    """Lets waiting callers go on, one at a time and peer by peer.

    Args:
        pause: returns how long to pause after a turn that took so many seconds, in seconds.
    """

    def __init__(self, pause: Callable[[float], float] = lambda _: 0.0) -> None:
        self._pause = pause
        self._waiting: dict[P, deque[asyncio.Future[None]]] = {}
        """ The peer whose turn is next comes first. """
        self._free_at = 0.0
        self._taken = False
        self._timer: asyncio.Handle | None = None

    @contextlib.asynccontextmanager
    async def turn(self, peer: P) -> AsyncIterator[None]:
        """Wait for a turn of this peer. The caller must not await anything before the turn ends."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(peer, deque()).append(turn)
        self._schedule()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end(0.0)  # it got the turn in the moment in which it was cancelled
            raise
        began = time.monotonic()
        try:
            yield
        finally:
            self._end(time.monotonic() - began)

    def _end(self, took: float) -> None:
        self._taken = False
        self._free_at = asyncio.get_running_loop().time() + self._pause(took)
        self._schedule()

    def _schedule(self) -> None:
        if not self._taken and self._timer is None and self._waiting:
            loop = asyncio.get_running_loop()
            wait = self._free_at - loop.time()
            self._timer = loop.call_later(wait, self._next) if wait > 0 else loop.call_soon(self._next)

    def _next(self) -> None:
        self._timer = None
        while self._waiting and not self._taken:
            peer = next(iter(self._waiting))
            turns = self._waiting.pop(peer)
            turn = turns.popleft()
            if turns:
                self._waiting[peer] = turns
            if not turn.done():
                self._taken = True
                turn.set_result(None)
