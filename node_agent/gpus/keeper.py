"""Looks after the GPUs' health, in one thread of its own, and says when a verdict has changed.

A driver in trouble may take minutes for an answer, or never give one: then what it was asked about is unhealthy for
that reason, and the thread goes on when it is let go. While a GPU is in trouble or there is none, the driver is asked
anew which GPUs there are, so a driver that comes late or is loaded again is found without a restart.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orion.node_agent.gpus.asking import AskingThread
from orion.node_agent.gpus.hysteresis import Hysteresis, Patience
from orion.node_agent.gpus.interface import Gpu, GpuSource, GpusUnavailable, Health

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_SEARCH_SECONDS = 5.0
_HANGS_SECONDS = 10.0
""" A driver that does not answer for so long is in trouble. """

GONE = Health(False, "GPUGone", "the driver no longer lists this GPU: it was taken out, or has fallen off the bus")
HANGS = Health(
    False,
    "DriverHangs",
    f"the driver has not answered for {_HANGS_SECONDS:g} s: look in the kernel's log, and reset the GPU or reboot",
)


@dataclass(frozen=True)
class _Look:
    """What one look found."""

    health: dict[str, Health]
    mig: dict[str, bool]
    found: list[Gpu] | None
    """ None: it was not asked, or not answered. """


class HealthKeeper:
    """Verdicts on the GPUs of a source.

    Args:
        source: what is asked.
        gpus: those that were found at the start.
        changed: called on the event loop when a verdict, or whether a GPU is cut into MIG instances, has changed.
        found: called on the event loop with a GPU that came later.
        patience: how long a GPU in trouble is waited for.
    """

    def __init__(
        self,
        source: GpuSource,
        gpus: Iterable[Gpu],
        changed: Callable[[], None],
        found: Callable[[Gpu], None] = lambda gpu: None,
        patience: Patience | None = None,
    ) -> None:
        self._source, self._changed, self._found = source, changed, found
        self._patience = patience or Patience()
        self._gpus = {gpu.uuid: gpu for gpu in gpus}
        self._verdicts = {uuid: Hysteresis(self._patience) for uuid in self._gpus}
        self._mig: dict[str, bool] = {}
        self._gone: set[str] = set()
        self._searched = float("-inf")
        self._told = ""
        self._thread = AskingThread("health")

    def verdict(self, uuid: str) -> Health:
        """Return whether pods may come to a GPU, as far as the GPU itself is concerned."""
        kept = self._verdicts.get(uuid)
        return kept.verdict if kept else GONE

    def mig(self, uuid: str) -> bool:
        """Return whether a GPU is cut into MIG instances."""
        return self._mig.get(uuid, False)

    @property
    def unavailable(self) -> str:
        """Why the driver cannot say which GPUs there are; empty: it can, or was not asked."""
        return self._told

    @property
    def uuids(self) -> list[str]:
        """The GPUs that are looked after."""
        return list(self._gpus)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Look once; returns when the driver has answered."""
        asking = asyncio.wrap_future(self._thread.submit(self._ask, list(self._gpus.values()), self._must_search()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HANGS_SECONDS):
                await asyncio.shield(asking)
        if not asking.done():
            self._take(dict.fromkeys(self._gpus, HANGS), self._mig)
        look = await asking
        if look.found is not None:
            self._take_found(look.found)
        self._take(look.health | dict.fromkeys(self._gone, GONE), look.mig)

    def _must_search(self) -> bool:
        """Return whether to ask which GPUs there are: it costs the driver more than a look."""
        now = time.monotonic()
        well = self._gpus and all(each.verdict.healthy for each in self._verdicts.values())
        if well or now - self._searched < _SEARCH_SECONDS:
            return False
        self._searched = now
        return True

    def _ask(self, gpus: list[Gpu], search: bool) -> _Look:
        found = None
        if search:
            try:
                found = self._source.find()
            except GpusUnavailable as error:
                self._say(str(error))
            else:
                self._say("")
        health = {gpu.uuid: self._source.health(gpu) for gpu in gpus}
        return _Look(health, {gpu.uuid: self._source.mig_enabled(gpu) for gpu in gpus}, found)

    def _say(self, what: str) -> None:
        if what != self._told:
            _log.warning("gpus: %s", what or "the driver answers again")
        self._told = what

    def _take_found(self, found: list[Gpu]) -> None:
        self._gone = self._gpus.keys() - {gpu.uuid for gpu in found}
        for gpu in found:
            if gpu.uuid not in self._gpus:
                self._gpus[gpu.uuid] = gpu
                self._verdicts[gpu.uuid] = Hysteresis(self._patience)
                _log.info("gpus: %s (%s) has come", gpu.uuid, gpu.model)
                self._found(gpu)

    def _take(self, health: dict[str, Health], mig: dict[str, bool]) -> None:
        now, changed = time.monotonic(), mig != self._mig
        self._mig = dict(mig)
        for uuid, report in health.items():
            if self._verdicts[uuid].look(report, now):
                changed = True
                verdict = self._verdicts[uuid].verdict
                _log.warning("gpus: %s is %s", uuid, f"unhealthy: {verdict.message}" if verdict.reason else "healthy")
        if changed:
            self._changed()
