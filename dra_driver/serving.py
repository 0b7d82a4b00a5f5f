"""Runs the DRA driver as a process: it assembles the parts and shuts them down cleanly."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

import grpc.aio

from orion.api_server.credentials import find_access
from orion.api_server.metrics import RequestMetrics
from orion.api_server.requests import ApiServer
from orion.crds.allocation import Giver
from orion.crds.claims import DRIVER
from orion.crds.configuration_file import LABELS_FILE, Change
from orion.dra_driver.answering import ClaimsService
from orion.dra_driver.cdi_files import CdiFiles
from orion.dra_driver.claim_locks import ClaimLocks
from orion.dra_driver.giving import Giving
from orion.dra_driver.health import HealthStreams
from orion.dra_driver.holding import Holding
from orion.dra_driver.kubelet.claims import api_pb2_grpc
from orion.dra_driver.metrics import Metrics
from orion.dra_driver.preparing import Preparer
from orion.dra_driver.publishing import Publishing
from orion.dra_driver.reading import ClaimReader
from orion.dra_driver.reconciling import Reconciling
from orion.dra_driver.records import Records, boot_id
from orion.dra_driver.settings import DriverSettings
from orion.dra_driver.sockets import Sockets
from orion.errors import Exhausted
from orion.exposition.answers import Answers
from orion.exposition.server import ExpositionServer
from orion.injection.agent_link import AgentLink
from orion.injection.configuration import Configuration
from orion.injection.current import CurrentSnapshot
from orion.injection.describing import Places
from orion.injection.fail_closed import FailClosedPods
from orion.injection.installing import HookFolder
from orion.injection.program import run_until_signal
from orion.injection.removed_folders import until_removed
from orion.injection.snapshot import SnapshotFile
from orion.injection.waiting import Waiting

SNAPSHOT_FILE, FAIL_CLOSED_FILE = "dra-driver.json", "dra-driver-fail-closed.json"
_PROGRAM = "orion-dra-driver"
_SWEEP_SECONDS = 600.0
_AGAIN_SECONDS, _AGAIN_MOST_SECONDS = 2.0, 60.0
""" After so long, and later after longer pauses, an agent learns again what it did not take over. """

_log = logging.getLogger(__name__)


def run(settings: DriverSettings) -> None:
    """Serve until SIGTERM or SIGINT. Running containers continue after that.

    Raises:
        NotFound: no API server is configured.
        Unreadable: the configuration file is invalid.
        Exhausted: the hook cannot be installed on the node, or the records have no folder.
        Unavailable: somebody has removed a folder that the driver's container mounts.
        OSError: the metrics address cannot be bound, or the package has no hook.
    """
    run_until_signal("driver", lambda: Driver(settings))


class Driver:
    """All parts of one driver. Create it inside a running event loop.

    Raises:
        NotFound: no API server is configured.
        Unreadable: the configuration file is invalid.
        OSError: the package has no hook.
    """

    def __init__(self, settings: DriverSettings) -> None:
        root, folder = settings.root.absolute(), settings.kubelet_folder.absolute()
        self.metrics, self.current, self._boot = Metrics(), CurrentSnapshot(), boot_id()
        self.configuration = Configuration(settings.configuration, root / LABELS_FILE if settings.node else None)
        self._records = Records(folder / "plugins" / DRIVER / "claims")
        self._connected, self._waiting = asyncio.Event(), Waiting(Giver.DRA, settings.by_node, self.current)
        fail_closed = FailClosedPods(root / FAIL_CLOSED_FILE)
        self._link = AgentLink(
            root, self.current, SnapshotFile(root / SNAPSHOT_FILE), fail_closed, self._agent_connected,
            settings.agent_patience,
        )  # fmt: skip
        metrics = RequestMetrics(self.metrics.registry, "orion_dra_driver_api")
        self._server = ApiServer(find_access(settings.kubeconfig), _PROGRAM, metrics)
        places = Places(root, settings.host, HookFolder(settings.hook_folder))
        holding = Holding(places, fail_closed, lambda: self.configuration.settings)
        giving = Giving(
            root, self._link, self.current, self._waiting, self._records, holding, settings.agent_patience, self._boot,
            self._untold,
        )  # fmt: skip
        self._places, cdi = places, settings.cdi_folder.absolute()
        self._mounted = (root, folder / "plugins", folder / "plugins_registry", cdi, places.files.base)
        files = CdiFiles(cdi)
        reader, locks = ClaimReader(self._server, settings.node), ClaimLocks()
        self._preparer = Preparer(
            reader, self._link, self.current, giving, holding, self._records, files, places,
            lambda: self.configuration.settings, self._boot, locks, self._untold,
        )  # fmt: skip
        self._reconciling = Reconciling(reader, self._link, giving, self._records, self._preparer, locks)
        self._claims = ClaimsService(self._preparer, self.metrics)
        self._health = HealthStreams(settings.node, self.current, self._records)
        self._sockets = Sockets(folder, self._add_services, self.metrics.registered.set)
        self._publishing = Publishing(
            self._server, settings.node, self.current, self._waiting, settings.slot_memory_mib << 20,
            lambda: self.configuration.settings, self._sockets.is_latest, self.metrics,
        )  # fmt: skip
        self.metrics.claims.set_function(lambda: len(self._records.all()))
        answers = Answers(self.metrics.text, self._unready)
        self._exposition = ExpositionServer(answers, settings.metrics_address) if settings.metrics_address else None

    async def run(self) -> None:
        """Serve for ever. The files of prepared claims exist again before the kubelet can find the driver.

        Raises:
            Exhausted: the hook cannot be installed on the node, or the records have no folder.
            Unavailable: somebody has removed a folder that the driver's container mounts.
            OSError: the metrics address cannot be bound.
        """
        await asyncio.to_thread(self._records.load)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._server.close)
            stack.push_async_callback(self._link.close)
            stack.push_async_callback(self._sockets.stop)
            stack.push_async_callback(self._claims.end)
            stack.callback(self._health.end)
            if self._exposition is not None:
                stack.push_async_callback(self._exposition.stop)
            self._link.recall()
            await asyncio.to_thread(self._preparer.restore)
            await self._work()

    async def _work(self) -> None:
        parts: list[Coroutine[Any, Any, None]] = [
            *([self._exposition.start_when_free()] if self._exposition is not None else []),
            self._link.listen(),
            self.configuration.follow(self._configured),
            self._tell_agents(),
            self._renew_for_ever(),
            self._waiting.follow(self.metrics.waits.set),
            self._sweep_for_ever(),
            self._sockets.run(),
            self._publishing.run(),
            until_removed(self._mounted),
        ]
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _add_services(self, server: grpc.aio.Server) -> None:
        with contextlib.suppress(Exhausted):
            self._records.refresh()  # who removed the sockets may have removed the records with them
        api_pb2_grpc.add_DRAPluginServicer_to_server(self._claims, server)  # type: ignore[no-untyped-call]
        self._health.add_to(server)

    def _agent_connected(self, connected: bool) -> None:
        self.metrics.agent_connected.set(connected)
        if connected:
            self._connected.set()

    def _untold(self) -> None:
        """Let an agent that is connected and did not answer in time learn what was given or taken back."""
        if self._link.connected:
            self._connected.set()

    async def _tell_agents(self) -> None:
        """Tell each new agent which claims have slots, for ever; again and again if it does not take over all."""
        pause = _AGAIN_SECONDS
        while True:
            await self._connected.wait()
            self._connected.clear()
            knows_all = await self._reconciling.tell_agent()
            await self._reconciling.release_unrecorded()
            if knows_all:
                pause = _AGAIN_SECONDS
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._connected.wait()
            self._connected.set()
            pause = min(2 * pause, _AGAIN_MOST_SECONDS)

    async def _sweep_for_ever(self) -> None:
        """Remove what is left of claims that are gone, and the hook's earlier versions that no claim mounts."""
        while True:
            await self._reconciling.remove_gone()
            await self._reconciling.release_unrecorded()
            await self._preparer.renew(everything=True)
            await self._preparer.sweep()
            await asyncio.sleep(_SWEEP_SECONDS)

    async def _renew_for_ever(self) -> None:
        """Name further pods of claims, and hold the restarts of other pods, when configuration or agent say so."""
        changed = self.current.changed.next
        pause: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await changed.wait()
            changed = self.current.changed.next
            await self._preparer.renew()  # now, because the naming may wait for the API server
            if self.current.snapshot is None:
                continue
            knows_all = await self._reconciling.name_pods(self.current.snapshot.other_users)
            await self._preparer.renew()
            pause = None if knows_all else min(2 * pause if pause else _AGAIN_SECONDS, _AGAIN_MOST_SECONDS)

    def _configured(self, change: Change) -> None:
        self.metrics.configurations.labels(change.value).inc()
        self.current.changed.notify()

    def _unready(self) -> str:
        """Return what the driver waits for, as a sentence; empty if it is ready."""
        if self.current.snapshot is None:
            return "the node's agent has not yet reported its GPUs"
        if not self._sockets.stands:
            return "the kubelet has not accepted the driver"
        return self._publishing.problem
