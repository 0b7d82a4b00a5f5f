"""The loop that checks the GPUs: often while clients are active, rarely while they are not.

While no slots compete for turns anywhere, each GPU is checked in its own time. Else all are checked together, because
the turns of jobs depend on all of their GPUs.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping

from orion.node_agent.pacing.tolerating import Tolerating
from orion.node_agent.sharing.served import ServedGpu

_LOOK_SECONDS = 0.1
_EARLY = 0.25
""" A check is made so much earlier, as a part of the time between two, if another one is made then. """
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
            seconds = self.look(only_due=True)
            before, worked = worked, time.thread_time()
            seconds = max(seconds, min(_LOOK_SECONDS, (worked - before) / _LOOKING_MAX))
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
                    await asyncio.sleep(_LOOK_SECONDS)

    def look(self, *, only_due: bool = False) -> float:
        """Check the GPUs, or those whose time has come; return the seconds until the next check.

        A failure of one GPU stops no other check.
        """
        now = time.monotonic_ns()
        only_due &= not any(gpu.turns.competing for gpu in self._gpus.values())
        self._tolerating = {uuid: self._tolerating.get(uuid) or Tolerating(f"{uuid}: a check") for uuid in self._gpus}
        for uuid, gpu in list(self._gpus.items()):
            if only_due and gpu.seconds_left(now) > _EARLY * gpu.look_seconds:
                continue
            with self._tolerating[uuid]:
                gpu.look(now)
        with self._saving:
            if any(gpu.unsaved for gpu in self._gpus.values()):
                self._save()
        self._looked = time.monotonic()
        return min((gpu.seconds_left(now) for gpu in self._gpus.values()), default=_LOOK_SECONDS)
