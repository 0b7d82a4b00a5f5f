"""Runs the reconciler: kopf's watches, the count of objects, the Lease, the workers, and a page for probes and metrics.

All on one event loop, and nothing in it blocks. Whatever ends by itself ends the process with a sentence: Kubernetes
starts it again, and everything that it knew is in the API server.
"""

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import kopf
from prometheus_client import CollectorRegistry, generate_latest

from orion.api_server.credentials import find_access
from orion.api_server.requests import ApiError, ApiServer
from orion.crds.model import API_VERSION
from orion.exposition.answers import Answers
from orion.exposition.server import ExpositionServer
from orion.operator.reconciler.controller import Controller
from orion.operator.reconciler.lease import Alone, Leadership
from orion.operator.reconciler.metrics import Metrics
from orion.operator.reconciler.resync import Resync
from orion.operator.reconciler.settings import ReconcilerSettings
from orion.operator.reconciler.state import State
from orion.operator.reconciler.watching import PROGRAM, Intake, kopf_settings, registry

_LOG = logging.getLogger(__name__)
_GC_THRESHOLDS = (50_000, 20, 50)
""" Python's own (700, 10, 10) look at all records again and again while lists come in: half of the time to ready. """


Part = Callable[[ApiServer, Callable[[], bool], CollectorRegistry], Coroutine[Any, Any, None]]
""" What else runs in this process: given the API server, whether it may write now, and where its metrics go. """


class Stopped(Exception):
    """The reconciler cannot go on; the text says why."""


class Reconciler:
    """All parts of one reconciler; to be made inside a running event loop.

    Args:
        settings: of this process.
        beside: what else runs in it.

    Raises:
        NoCluster: there is no way to an API server.
    """

    def __init__(self, settings: ReconcilerSettings, beside: Sequence[Part] = ()) -> None:
        self._settings, self._beside = settings, beside
        self.metrics, self.state = Metrics(), State()
        self._access = find_access(settings.kubeconfig)
        self._api = ApiServer(
            self._access,
            PROGRAM,
            self.metrics.api,
            concurrency=settings.concurrency,
            attempt_s=settings.request_seconds,
        )
        self._leader: Leadership | Alone = (
            Leadership(self._api, settings, self.metrics) if settings.elect else Alone(self.metrics)
        )
        self._controller = Controller(self.state, self._api, self._leader, self.metrics, settings.identity)
        self._intake = Intake(self.state, self._controller)
        self._resync = Resync(self._api, self._intake, settings.namespaces)
        self._ready = False

    async def run(self) -> None:
        """Run until cancelled or asked to end by a signal.

        Raises:
            Stopped: something that must not end has ended.
            OSError: the address of probes and metrics cannot be had.
        """
        try:
            await self._check_kinds()
            async with self._exposed():
                await self._run_parts()
        finally:
            await self._api.close()

    async def _run_parts(self) -> None:
        parts = [
            self._leader.keep(),
            self._leader.watch_end(),
            self._count(),
            *(self._controller.work() for _ in range(self._settings.concurrency)),
            *(part(self._api, self._leader.mine, self.metrics.registry) for part in self._beside),
        ]
        tasks = {asyncio.create_task(part) for part in parts}
        watches = asyncio.create_task(self._watch(), name="watches")
        try:
            done, _ = await asyncio.wait({*tasks, watches}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if watches not in done:
                raise Stopped("a part of the reconciler has ended")
        finally:
            for task in {*tasks, watches}:
                task.cancel()
            await asyncio.gather(*tasks, watches, return_exceptions=True)
            await self._leader.release()

    async def _watch(self) -> None:
        """Run kopf, which ends on SIGTERM and SIGINT."""
        namespaces = self._settings.namespaces
        try:
            await kopf.operator(
                registry=registry(self._intake, self._access),
                settings=kopf_settings(),
                clusterwide=not namespaces,
                namespaces=namespaces,
                identity=None,
            )
        except asyncio.CancelledError:
            raise
        except Exception as error:
            raise Stopped(f"the watches have ended: {error}") from error

    async def _check_kinds(self) -> None:
        """Refuse to run beside an API server that does not know our kinds: kopf would watch nothing, and be silent.

        Raises:
            Stopped: it does not, or cannot be asked.
        """
        try:
            found = {each["name"] for each in (await self._api.get(f"/apis/{API_VERSION}")).get("resources", ())}
        except ApiError as error:
            if error.status != 404:
                raise Stopped(f"the API server cannot be asked for its kinds: {error}") from error
            found = set()
        if missing := {"gpushares", "gpushares/status", "gpudevices"} - found:
            raise Stopped(
                f"the API server does not know {', '.join(sorted(missing))} of {API_VERSION}: "
                "apply charts/orion/files/crds"
            )

    async def _count(self) -> None:
        """Let work begin once all is known, then count again and again."""
        await self._resync.until_all_is_known()
        self._ready = True
        self.metrics.ready.set(1)
        gc.collect()
        gc.freeze()  # what is known now mostly stays
        self._controller.begin()
        _LOG.info("all objects are known: %s", self.state.counts())
        while True:
            await asyncio.sleep(self._settings.resync_seconds)
            with contextlib.suppress(ApiError):
                self._controller.changed(await self._resync.drop_what_is_gone())

    @contextlib.asynccontextmanager
    async def _exposed(self) -> AsyncIterator[None]:
        """Serve probes and metrics. kopf's own page knows no readiness, and would be a second port."""
        if not self._settings.address:
            yield
            return
        # An answer proves life: every part that must not end ends the process.
        server = ExpositionServer(Answers(self._text, self._unready), self._settings.address)
        await server.start()
        try:
            yield
        finally:
            await server.stop()

    def _unready(self) -> str:
        return "" if self._ready else "not all objects are known yet"

    async def _text(self) -> bytes:
        self.metrics.waiting.set(len(self._controller.queue))
        for kind, count in self.state.counts().items():
            self.metrics.objects.labels(kind).set(count)
        return generate_latest(self.metrics.registry)


def run(settings: ReconcilerSettings, beside: Sequence[Part] = ()) -> None:
    """Run the reconciler in this process until it is asked to end.

    Raises:
        Stopped: it cannot go on.
        NoCluster: there is no way to an API server.
        OSError: its address cannot be had.
    """

    async def main() -> None:
        await Reconciler(settings, beside).run()

    gc.set_threshold(*_GC_THRESHOLDS)
    asyncio.run(main())
