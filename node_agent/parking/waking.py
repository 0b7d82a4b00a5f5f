"""Wakes the loop that looks, and lets it rest.

Clients that join and leave in a loop wake it all the time, and each look costs the agent and the driver something on
all GPUs. So the loop rests some times as long as it has looked, unless hp waits.
"""

import asyncio
import contextlib
import time

_PAUSE_SECONDS = 0.002
_REST_TIMES = 4
_REST_MOST_SECONDS = 1.0


class Waking:
    """Whether somebody wants a look, and how long the loop waits for that."""

    def __init__(self) -> None:
        self._woken, self._hurried = asyncio.Event(), asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._began = 0.0
        self.has_changed = False
        """ Whether somebody has joined or left, or a grant has changed, since the last look began. """

    def wake(self) -> None:
        """Look soon at all GPUs: somebody has joined or left, or a grant has changed."""
        self.has_changed = True
        self._woken.set()

    def look_soon(self, *, for_hp: bool = False) -> None:
        """Look soon at the GPUs on which somebody waits for room. `for_hp`: at once, since hp waits."""
        self._woken.set()
        if for_hp:
            self._hurried.set()

    def look_in(self, seconds: float) -> None:
        """Do the same in so many seconds, or when it was said before."""
        loop = asyncio.get_running_loop()
        if self._timer is None or self._timer.when() <= loop.time():
            self._timer = loop.call_later(seconds, self.look_soon)

    def begin(self) -> bool:
        """Note that a look begins; return whether it has to be at all GPUs."""
        changed, self.has_changed = self.has_changed, False
        self._woken.clear()
        self._hurried.clear()
        self._began = time.monotonic()
        return changed

    async def wait(self, seconds: float | None, hp_waits: bool) -> None:
        """Rest after a look, and wait for so long at most until somebody wants another one; None: for ever."""
        ended = time.monotonic()
        await _wait_for(self._woken, seconds)
        rest = min(_REST_TIMES * (ended - self._began), _REST_MOST_SECONDS)
        if not hp_waits and (left := ended + rest - time.monotonic()) > 0:
            await _wait_for(self._hurried, left)
        if (left := ended + _PAUSE_SECONDS - time.monotonic()) > 0:
            await asyncio.sleep(left)


async def _wait_for(event: asyncio.Event, seconds: float | None) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
