"""The loop that checks the GPUs: often while clients are active, rarely while they are not."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping

from orion.node_agent.pacing.tolerating import Tolerating
from orion.node_agent.sharing.served import ServedGpu

_LOOK_SECONDS = 0.1
_LOOKING_MAX = 0.02
""" The maximum part of a CPU core that frequent checks may use; they are less frequent if they cost more. """


class Looking:
    """The loop of one agent.

    Args:
        gpus: by UUID; more may come later.
        save: writes the state file.
    """

    def __init__(self, gpus: Mapping[str, ServedGpu], save: Callable[[], None]) -> None:
        self._gpus, self._save = gpus, save
        self._looked = time.monotonic()
        self._wake = asyncio.Event()
        self._tolerating: dict[str, Tolerating] = {}
        self._saving = Tolerating("gpus: their state")

    @property
    def seconds_since(self) -> float:
        """The time since all GPUs were last checked."""
        return time.monotonic() - self._looked

    def wake(self) -> None:
        """Check soon, because a client joined or left."""
        self._wake.set()

    async def run(self) -> None:
        """Check the GPUs until cancelled."""
        worked = time.thread_time()
        while True:
            seconds = self.look()
            before, worked = worked, time.thread_time()
            seconds = max(seconds, min(_LOOK_SECONDS, (worked - before) / _LOOKING_MAX))
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
                    await asyncio.sleep(_LOOK_SECONDS)

    def look(self) -> float:
        """Check every GPU once; return the seconds until the next check. A failure of one GPU stops no other check."""
        now = time.monotonic_ns()
        self._tolerating = {uuid: self._tolerating.get(uuid) or Tolerating(f"{uuid}: a check") for uuid in self._gpus}
        for uuid, gpu in list(self._gpus.items()):
            with self._tolerating[uuid]:
                gpu.look(now)
        with self._saving:
            if any(gpu.unsaved for gpu in self._gpus.values()):
                self._save()
        self._looked = time.monotonic()
        return min((gpu.look_seconds for gpu in self._gpus.values()), default=_LOOK_SECONDS)
