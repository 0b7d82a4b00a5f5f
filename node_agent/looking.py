"""The loop that looks after the boards: often while something happens there, seldom while nothing does."""

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orion.node_agent.agent import Agent

_log = logging.getLogger(__name__)

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
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look closely for a while: somebody came or left."""
        self._active_ns = time.monotonic_ns()
        self._wake.set()

    async def run(self) -> None:
        """Look after the boards until cancelled."""
        worked = time.thread_time()
        while True:
            try:
                seconds = self.look()
            except Exception:  # one bad look must not be the last
                _log.exception("look: failed")
                seconds = _LOOK_SECONDS
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
        if any(gpu.contended for gpu in gpus):
            return _CONTENDED_LOOK_SECONDS
        return _IDLE_LOOK_SECONDS if now - self._active_ns > _IDLE_AFTER_NS else _LOOK_SECONDS
