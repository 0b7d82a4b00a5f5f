"""Runs the reconciler: kopf's watches, the resync, the Lease, the workers, and the servers for agents and probes.

All parts run on one event loop, and none of them blocks. If a part ends unexpectedly, the process ends with an error.
Kubernetes restarts the process, and the process reads its whole state from the API server again.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from typing import Any

import kopf
from prometheus_client import CollectorRegistry, generate_latest

from orion.api_server.credentials import find_access
from orion.api_server.requests import ApiError, ApiServer
from orion.crds.model import API_VERSION
from orion.errors import Unavailable
from orion.exposition.answers import Answers
from orion.exposition.server import ExpositionServer
from orion.operator.node_pods.serving import NodePodsServer
from orion.operator.node_pods.settings import NodePodsSettings
from orion.operator.reconciler.controller import Controller
from orion.operator.reconciler.garbage import collect_in_short_steps
from orion.operator.reconciler.lease import Alone, Leadership
from orion.operator.reconciler.listing import Lists
from orion.operator.reconciler.metrics import Metrics
from orion.operator.reconciler.pods_of_nodes import PodsOfNodes
from orion.operator.reconciler.resync import Resync
from orion.operator.reconciler.settings import ReconcilerSettings
from orion.operator.reconciler.state import State
from orion.operator.reconciler.templates import remove_unused
from orion.operator.reconciler.watching import PROGRAM, Intake, WatchedPods, kopf_settings, registry
from orion.shutdown import Shutdown

_STOP_S = 6.0
""" How long the parts may take to stop before the Lease is given back without them. """
_WATCHER = "watcher for "
""" How kopf's names of the tasks of watches begin. """

_LOG = logging.getLogger(__name__)

Part = Callable[[ApiServer, Callable[[], bool], CollectorRegistry], Coroutine[Any, Any, None]]
""" Another task of this process. Arguments: the API server, whether the process may write now, the metrics registry.
"""


class Reconciler:
    """All parts of one reconciler. Create it inside a running event loop.

    Args:
        settings: the settings of this process.
        beside: other tasks that run in this process.
        node_pods: how to serve node agents; None: they are not served.

    Raises:
        NoCluster: no API server is configured.
    """

    def __init__(
        self, settings: ReconcilerSettings, beside: Sequence[Part] = (), node_pods: NodePodsSettings | None = None
    ) -> None:
        self._settings, self._beside = settings, beside
        self.metrics = Metrics()
        self.state = State(settings.shares_per_namespace, settings.allocation)
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
        self._writing = self._api.only_while(self._leader.mine)
        self._controller = Controller(self.state, self._writing, self._leader, self.metrics, settings.identity)
        self._leader.on_taken = self._leads
        self._intake = Intake(self.state, self._controller)
        self._kopf = kopf_settings()
        self._lists = Lists(self._intake, settings.namespaces)
        watched = WatchedPods(self._kopf)
        self._resync = Resync(self._api, self._intake, watched, self._lists.complete, settings.namespaces)
        self._known, self._shutdown = asyncio.Event(), Shutdown()
        self._node_pods: NodePodsServer | None = None
        if node_pods is not None:
            source = PodsOfNodes(self.state)
            self._node_pods = NodePodsServer(node_pods, self._api, source, self.metrics.registry)
            self._controller.notice = self._node_pods.notice

    async def run(self) -> None:
        """Run until cancelled, or until SIGTERM or SIGINT.

        Raises:
            Unavailable: a part that must run for ever has ended.
            OSError: an address cannot be bound.
        """
        try:
            await self._shutdown.run(self._run())
        finally:
            await self._api.close()

    async def _run(self) -> None:
        await self._check_kinds()
        async with self._exposed():
            await self._run_parts()

    async def _run_parts(self) -> None:
        parts = [
            self._leader.keep(),
            self._leader.watch_end(),
            self._resync_forever(),
            *(self._controller.work() for _ in range(self._settings.concurrency)),
            *(part(self._writing, self._leader.mine, self.metrics.registry) for part in self._beside),
            *([self._node_pods.keep_published(), self._node_pods.serve()] if self._node_pods else ()),
        ]
        tasks = {asyncio.create_task(part) for part in parts}
        watches = asyncio.create_task(self._watch(), name="watches")
        try:
            done, _ = await asyncio.wait({*tasks, watches}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            raise Unavailable("a part of the reconciler has ended")
        finally:
            self._shutdown.begin()
            await _cancel({*tasks, watches})
            await self._leader.release()

    async def _watch(self) -> None:
        """Run kopf.

        If a watch fails, kopf stops the others. `kopf.run_tasks` then waits without a limit until they have stopped,
        and one that logs in again never stops. So this function waits for kopf's tasks itself.

        Raises:
            Unavailable: kopf has given up a watch.
        """
        await self._resync.chosen.wait()
        namespaces = self._settings.namespaces
        tasks = await kopf.spawn_tasks(
            registry=registry(self._intake, self._access, self._lists.response_class()),
            settings=self._kopf,
            clusterwide=not namespaces,
            namespaces=namespaces,
            identity=None,
        )
        self._shutdown.handle_signals()  # in place of kopf's handlers, which end kopf first
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            errors = [error for task in ended if not task.cancelled() and (error := task.exception())]
            raise Unavailable(f"the watches have ended: {errors[0] if errors else 'without an error'}")
        finally:
            # A watcher that is cancelled together with the task for which it waits goes on, so watchers come first.
            await _cancel([task for task in asyncio.all_tasks() if task.get_name().startswith(_WATCHER)])
            await _cancel(tasks)

    async def _check_kinds(self) -> None:
        """Check that the API server knows Orion's kinds. Otherwise kopf would watch nothing, without an error.

        Raises:
            Unavailable: the API server does not know the kinds, or does not answer.
        """
        try:
            found = {each["name"] for each in (await self._api.get(f"/apis/{API_VERSION}")).get("resources", ())}
        except ApiError as error:
            if error.status != 404:
                raise Unavailable(f"the API server cannot be asked for its kinds: {error}") from error
            found = set()
        if missing := {"gpushares", "gpushares/status", "gpudevices"} - found:
            raise Unavailable(
                f"the API server does not know {', '.join(sorted(missing))} of {API_VERSION}: "
                "apply charts/orion/files/crds"
            )

    def _leads(self) -> None:
        self.state.rollouts.leads()
        self._controller.leads()

    async def _resync_forever(self) -> None:
        """Start the workers once all objects are known, then resync periodically."""
        await self._resync.until_all_is_known()
        self._known.set()
        self.metrics.ready.set(1)
        await self._controller.begin()
        if self._node_pods is not None:
            self._node_pods.begin()
        _LOG.info("all objects are known: %s", self.state.counts())
        while True:
            with contextlib.suppress(ApiError):
                self._controller.changed(await self._resync.next_comparison(self._settings.resync_seconds))
                if self.state.by_claims:
                    await remove_unused(self._writing, self.state.templates, self._leader.mine)

    @contextlib.asynccontextmanager
    async def _exposed(self) -> AsyncIterator[None]:
        """Serve probes and metrics. kopf's own health server has no readiness probe, and would need a second port."""
        if not self._settings.address:
            yield
            return
        # Any answer means that the process is alive: if one of its parts ends, the process ends.
        server = ExpositionServer(Answers(self._text, self._unready), self._settings.address)
        await server.start()
        try:
            yield
        finally:
            await server.stop()

    def _unready(self) -> str:
        if not self._known.is_set():
            return "not all objects are known yet"
        return self._node_pods.waits_for if self._node_pods is not None else ""

    async def _text(self) -> bytes:
        self.metrics.waiting.set(len(self._controller.queue))
        for kind, count in self.state.counts().items():
            self.metrics.objects.labels(kind).set(count)
        self.metrics.ungoverning.clear()
        for namespace, count in self.state.ungoverning().items():
            self.metrics.ungoverning.labels(namespace).set(count)
        return generate_latest(self.metrics.registry)


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have stopped. Those that do not are left to `Shutdown`."""
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    stopped, _ = await asyncio.wait(tasks, timeout=_STOP_S)
    await asyncio.gather(*stopped, return_exceptions=True)  # otherwise asyncio logs errors that nobody has read


def run(settings: ReconcilerSettings, beside: Sequence[Part] = (), node_pods: NodePodsSettings | None = None) -> None:
    """Run the reconciler in this process until SIGTERM or SIGINT.

    Raises:
        Unavailable: the reconciler cannot continue.
        NoCluster: no API server is configured.
        OSError: an address cannot be bound.
    """

    async def main() -> None:
        await Reconciler(settings, beside, node_pods).run()

    collect_in_short_steps()
    asyncio.run(main())
