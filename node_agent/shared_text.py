"""A text that costs something to make, made once for all who ask while it is made.

Whoever asks gets the text that is being made, so however many ask, one is made at a time, and nobody stands in line for
texts of others. Between two of them is as much rest as the last one took: half of the time at most goes into it.
"""

import asyncio
from collections.abc import Awaitable, Callable


class SharedText:
    """The text, anew for everybody who comes after it was made.

    Args:
        make: makes it; only ever under way once.
    """

    def __init__(self, make: Callable[[], Awaitable[bytes]]) -> None:
        self._make = make
        self._making: asyncio.Task[bytes] | None = None
        self._rested = 0.0
        """ When the next one may be begun; loop time. """

    async def get(self) -> bytes:
        """Return the text; who gives up waiting takes it from nobody else. Raises what `make` raises."""
        if self._making is None:
            self._making = asyncio.create_task(self._once())
        return await asyncio.shield(self._making)

    def close(self) -> None:
        """Make none any more; who waits for one is cancelled."""
        if self._making is not None:
            self._making.cancel()

    async def _once(self) -> bytes:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(self._rested - loop.time())
            began = loop.time()
            try:
                return await self._make()
            finally:
                self._rested = 2 * loop.time() - began
        finally:
            self._making = None
