"""The loop that looks after the boards: often while something happens there, seldom while nothing does."""

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from orion.node_agent.tolerating import Tolerating

if TYPE_CHECKING:
    from orion.node_agent.agent import Agent

_LOOK_SECONDS = 0.1
_CONTENDED_LOOK_SECONDS = 0.025
""" While several be slots share a GPU, at the most; less often where that costs more than the next says. """
_LOOKING_MAX = 0.01
""" Share of a CPU core. """
_IDLE_LOOK_SECONDS = 0.5
_IDLE_AFTER_NS = 2_000_000_000
""" Nothing launched and nobody came or left for so long: the loop looks less often. """


class Looking:
    """The loop of one agent."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._active_ns = time.monotonic_ns()
        self._looked = time.monotonic()
        self._wake = asyncio.Event()

    @property
    def seconds_since(self) -> float:
        """How long ago all boards were looked after."""
        return time.monotonic() - self._looked

    def wake(self) -> None:
        """Look closely for a while: somebody came or left."""
        self._active_ns = time.monotonic_ns()
        self._wake.set()

    async def run(self) -> None:
        """Look after the boards until cancelled."""
        worked, tolerating = time.thread_time(), Tolerating("boards: a look")
        while True:
            seconds = _LOOK_SECONDS
            with tolerating:
                seconds = self.look()
            before, worked = worked, time.thread_time()
            seconds = max(seconds, min(_LOOK_SECONDS, (worked - before) / _LOOKING_MAX))
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
                    await asyncio.sleep(_LOOK_SECONDS)

    def look(self) -> float:
        """Look at every board once; return the seconds until the next look."""
        now = time.monotonic_ns()
        gpus = self._agent.gpus.values()
        for gpu in gpus:
            if gpu.look(now):
                self._active_ns = now
        if any(gpu.unsaved for gpu in gpus):
            self._agent.save_all()
        self._looked = time.monotonic()
        if any(gpu.contended for gpu in gpus):
            return _CONTENDED_LOOK_SECONDS
        return _IDLE_LOOK_SECONDS if now - self._active_ns > _IDLE_AFTER_NS else _LOOK_SECONDS
