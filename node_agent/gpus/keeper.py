"""Looks after the GPUs' health, in one thread of its own, and says when a verdict has changed.

A driver in trouble may take minutes for an answer, or never give one: then what it was asked about is unhealthy for
that reason, and the thread goes on when it is let go. The driver is asked again which GPUs there are, often while a GPU
is in trouble or there is none, and seldom while all are well: so a driver that comes late or is loaded again is found
without a restart, and so is a GPU that did not answer when the others did.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orion.node_agent.gpus.asking import AskingThread
from orion.node_agent.gpus.hysteresis import Hysteresis, Patience
from orion.node_agent.gpus.interface import GONE, Gpu, GpuSource, GpusUnavailable, Health
from orion.node_agent.pacing.tolerating import periodically

__all__ = ["GONE", "HANGS", "HealthKeeper"]

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_SEARCH_SECONDS = 5.0
_SEARCH_WELL_SECONDS = 60.0
""" While all GPUs that are known are well. """
_HANGS_SECONDS = 10.0
""" A driver that does not answer for so long is in trouble. """

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
        found: called on the event loop with a GPU that came later, or that the driver now describes otherwise; by then
            its health, and whether it is cut into MIG instances, are known.
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
        self._searched = time.monotonic() if self._gpus else float("-inf")
        self._reported = ""
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
        return self._reported

    @property
    def uuids(self) -> list[str]:
        """The GPUs that are looked after."""
        return list(self._gpus)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        await periodically("gpus: a look", _LOOK_SECONDS, self.look)

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
            self._take_found(look, look.found)
        # One that a search has missed, and that answers, is not gone: the search was a slip.
        gone = {uuid for uuid in self._gone if uuid in look.health and not look.health[uuid].healthy}
        self._take(look.health | dict.fromkeys(gone, GONE), look.mig)

    def _must_search(self) -> bool:
        """Return whether to ask which GPUs there are: it costs the driver more than a look."""
        now = time.monotonic()
        well = self._gpus and all(each.verdict.healthy for each in self._verdicts.values())
        if now - self._searched < (_SEARCH_WELL_SECONDS if well else _SEARCH_SECONDS):
            return False
        self._searched = now
        return True

    def _ask(self, gpus: list[Gpu], search: bool) -> _Look:
        found = self._search() if search else None
        known = {gpu.uuid for gpu in gpus}
        asked = [*gpus, *(gpu for gpu in found or [] if gpu.uuid not in known)]
        health = {gpu.uuid: self._health(gpu) for gpu in asked}
        return _Look(health, {gpu.uuid: self._mig_enabled(gpu) for gpu in asked}, found)

    def _search(self) -> list[Gpu] | None:
        try:
            found = self._source.find()
        except GpusUnavailable as error:
            self._say(str(error))
        except Exception as error:  # what is known of the others must not get old for it
            self._say(f"the search for GPUs failed: {error!r}")
        else:
            self._say("")
            return found
        return None

    def _health(self, gpu: Gpu) -> Health:
        try:
            return self._source.health(gpu)
        except Exception as error:  # one GPU does not take the others along
            return Health(False, "DriverError", f"the GPU's health cannot be had: {error!r}", critical=False)

    def _mig_enabled(self, gpu: Gpu) -> bool:
        try:
            return self._source.mig_enabled(gpu)
        except Exception:  # as last known; one that was never known is not to be shared
            return self._mig.get(gpu.uuid, True)

    def _say(self, what: str) -> None:
        if what != self._reported:
            _log.warning("gpus: %s", what or "the driver answers again")
        self._reported = what

    def _take_found(self, look: _Look, found: list[Gpu]) -> None:
        self._gone = self._gpus.keys() - {gpu.uuid for gpu in found}
        for gpu in found:
            uuid, before = gpu.uuid, self._gpus.get(gpu.uuid)
            if gpu == before:
                continue
            if before is None:
                self._verdicts.setdefault(uuid, Hysteresis(self._patience, look.health[uuid]))
                self._mig[uuid] = look.mig[uuid]
                _log.info("gpus: %s (%s) has come", uuid, gpu.model)
            else:
                _log.info("gpus: %s is now number %d, /dev/nvidia%d", uuid, gpu.index, gpu.minor)
            self._found(gpu)
            self._gpus[uuid] = gpu  # last: if `_found` fails, the next search calls it again

    def _take(self, health: dict[str, Health], mig: dict[str, bool]) -> None:
        now, merged = time.monotonic(), self._mig | mig
        changed, self._mig = merged != self._mig, merged
        for uuid, report in health.items():
            if self._verdicts[uuid].look(report, now):
                changed = True
                verdict = self._verdicts[uuid].verdict
                _log.warning("gpus: %s is %s", uuid, f"unhealthy: {verdict.message}" if verdict.reason else "healthy")
        if changed:
            self._changed()
