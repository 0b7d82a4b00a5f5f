"""Lets one call at a time work on a claim, while calls for other claims go on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from orion.errors import Unavailable


class ClaimLocks:
    """A lock for each claim that somebody works on."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        """ By claim, its lock and the number of calls that have it or wait for it. """

    @contextlib.asynccontextmanager
    async def of(self, uid: str, deadline: float | None = None, title: str = "") -> AsyncIterator[None]:
        """Wait for earlier calls for a claim; later ones wait while the context lasts.

        Args:
            uid: the claim's uid.
            deadline: until when to wait (in seconds, monotonic); None: as long as it takes.
            title: the claim, for the sentence.

        Raises:
            Unavailable: an earlier call did not end before the deadline.
        """
        lock, count = self._locks.get(uid, (asyncio.Lock(), 0))
        self._locks[uid] = lock, count + 1
        try:
            try:
                async with asyncio.timeout_at(deadline):  # asyncio's clock is time.monotonic
                    await lock.acquire()
            except TimeoutError:
                raise Unavailable(f"an earlier call for {title} still waits; the kubelet tries again") from None
            try:
                yield
            finally:
                lock.release()
        finally:
            lock, count = self._locks.pop(uid)
            if count > 1:
                self._locks[uid] = lock, count - 1
