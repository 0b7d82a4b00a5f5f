"""Checks the GPUs' health in its own thread, and reports when a verdict has changed.

A driver in trouble may answer after minutes or never. The GPUs of such a query are then unhealthy for that reason, and
the thread continues when the call returns. The keeper also searches for GPUs: often while a GPU is unhealthy or no GPU
is known, rarely while all GPUs are healthy. So the agent need not restart for a driver that is loaded late or again, or
for a GPU that did not answer at first.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orion.errors import Unavailable
from orion.node_agent.gpus.asking import AskingThread
from orion.node_agent.gpus.hysteresis import Hysteresis, Patience
from orion.node_agent.gpus.interface import GONE, Gpu, GpuSource, Health
from orion.node_agent.pacing.tolerating import periodically

__all__ = ["GONE", "HANGS", "HealthKeeper"]

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_SEARCH_SECONDS = 5.0
_SEARCH_WELL_SECONDS = 60.0
""" The time between two searches while all known GPUs are healthy. """
_HANGS_SECONDS = 10.0
""" A driver that has not answered for this time counts as hanging. """

HANGS = Health(
    False,
    "DriverHangs",
    f"the driver has not answered for {_HANGS_SECONDS:g} s: look in the kernel's log, and reset the GPU or reboot",
)


@dataclass(frozen=True)
class _Look:
    """The result of one check."""

    health: dict[str, Health]
    mig: dict[str, bool]
    found: list[Gpu] | None
    """ None: this check did not search for GPUs, or the search failed. """


class HealthKeeper:
    """Verdicts on the GPUs of a source.

    Args:
        source: finds and queries the GPUs.
        gpus: the GPUs that were found at the start.
        changed: called on the event loop when a GPU's verdict or MIG mode has changed.
        found: called on the event loop with a GPU that was found later, or whose description has changed. The GPU's
            health and MIG mode are known before this call.
        patience: the limits of a verdict.
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
        """Return the verdict on a GPU."""
        kept = self._verdicts.get(uuid)
        return kept.verdict if kept else GONE

    def mig(self, uuid: str) -> bool:
        """Return whether a GPU has MIG enabled."""
        return self._mig.get(uuid, False)

    @property
    def unavailable(self) -> str:
        """Why the last search for GPUs failed; empty: it succeeded, or there was no search."""
        return self._reported

    @property
    def uuids(self) -> list[str]:
        """The GPUs that are checked."""
        return list(self._gpus)

    async def run(self) -> None:
        """Check the GPUs at intervals until cancelled."""
        await periodically("gpus: a health check", _LOOK_SECONDS, self.look)

    async def look(self) -> None:
        """Check the GPUs once; return when the driver has answered."""
        asking = asyncio.wrap_future(self._thread.submit(self._ask, list(self._gpus.values()), self._must_search()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HANGS_SECONDS):
                await asyncio.shield(asking)
        if not asking.done():
            self._take(dict.fromkeys(self._gpus, HANGS), self._mig)
        look = await asking
        if look.found is not None:
            self._take_found(look, look.found)
        # If a search has missed a GPU but the GPU answers, the search was wrong: the GPU is not gone.
        gone = {uuid for uuid in self._gone if uuid in look.health and not look.health[uuid].healthy}
        self._take(look.health | dict.fromkeys(gone, GONE), look.mig)

    def _must_search(self) -> bool:
        """Return whether to search for GPUs now. A search costs the driver more than a check."""
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
        except Unavailable as error:
            self._log_search(str(error))
        except Exception as error:  # the known GPUs must still be checked
            self._log_search(f"the search for GPUs failed: {error!r}")
        else:
            self._log_search("")
            return found
        return None

    def _health(self, gpu: Gpu) -> Health:
        try:
            return self._source.health(gpu)
        except Exception as error:  # an error of one GPU must not affect the others
            return Health(False, "DriverError", f"the GPU's health cannot be read: {error!r}", critical=False)

    def _mig_enabled(self, gpu: Gpu) -> bool:
        try:
            return self._source.mig_enabled(gpu)
        except Exception:  # use the last known answer; if there is none, do not share the GPU
            return self._mig.get(gpu.uuid, True)

    def _log_search(self, error: str) -> None:
        if error != self._reported:
            _log.warning("gpus: %s", error or "the driver answers again")
        self._reported = error

    def _take_found(self, look: _Look, found: list[Gpu]) -> None:
        self._gone = self._gpus.keys() - {gpu.uuid for gpu in found}
        for gpu in found:
            uuid, before = gpu.uuid, self._gpus.get(gpu.uuid)
            if gpu == before:
                continue
            if before is None:
                self._verdicts.setdefault(uuid, Hysteresis(self._patience, look.health[uuid]))
                self._mig[uuid] = look.mig[uuid]
                _log.info("gpus: %s (%s) was found", uuid, gpu.model)
            else:
                _log.info("gpus: %s now has index %d, /dev/nvidia%d", uuid, gpu.index, gpu.minor)
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
