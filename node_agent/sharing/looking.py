"""The loop that looks after the GPUs: often while something happens there, seldom while nothing does."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping

from orion.node_agent.pacing.tolerating import Tolerating
from orion.node_agent.sharing.served import ServedGpu

_LOOK_SECONDS = 0.1
_CONTENDED_LOOK_SECONDS = 0.025
""" While several be slots share a GPU, at the most; less often where that costs more than the next says. """
_LOOKING_MAX = 0.01
""" Share of a CPU core. """
_IDLE_LOOK_SECONDS = 0.5
_IDLE_AFTER_NS = 2_000_000_000
""" Nothing launched and nobody came or left for so long: the loop looks less often. """


class Looking:
    """The loop of one agent.

    Args:
        gpus: by UUID; others may come.
        save: writes the state file.
    """

    def __init__(self, gpus: Mapping[str, ServedGpu], save: Callable[[], None]) -> None:
        self._gpus, self._save = gpus, save
        self._active_ns = time.monotonic_ns()
        self._looked = time.monotonic()
        self._wake = asyncio.Event()

    @property
    def seconds_since(self) -> float:
        """How long ago all GPUs were looked after."""
        return time.monotonic() - self._looked

    def wake(self) -> None:
        """Look closely for a while: somebody came or left."""
        self._active_ns = time.monotonic_ns()
        self._wake.set()

    async def run(self) -> None:
        """Look after the GPUs until cancelled."""
        worked, tolerating = time.thread_time(), Tolerating("gpus: a check")
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
        """Look at every GPU once; return the seconds until the next look."""
        now = time.monotonic_ns()
        gpus = self._gpus.values()
        for gpu in gpus:
            if gpu.look(now):
                self._active_ns = now
        if any(gpu.unsaved for gpu in gpus):
            self._save()
        self._looked = time.monotonic()
        if any(gpu.contended for gpu in gpus):
            return _CONTENDED_LOOK_SECONDS
        return _IDLE_LOOK_SECONDS if now - self._active_ns > _IDLE_AFTER_NS else _LOOK_SECONDS
