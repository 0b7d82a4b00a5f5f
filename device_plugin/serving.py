"""Runs the device plugin as a process: it assembles the parts and shuts them down cleanly."""

import asyncio
import contextlib
import logging

from orion.crds.configuration_file import LABELS_FILE, Change
from orion.device_plugin import checkpoint
from orion.device_plugin.advertised import Advertised
from orion.device_plugin.allocating import Allocator
from orion.device_plugin.answering import DevicePluginService
from orion.device_plugin.endpoint import Endpoint
from orion.device_plugin.kubelet_folder import KubeletFolder
from orion.device_plugin.metrics import Metrics
from orion.device_plugin.registering import Registration
from orion.device_plugin.settings import PluginSettings
from orion.device_plugin.starting import Starter
from orion.device_plugin.sweeping import sweep_for_ever
from orion.exposition.answers import Answers
from orion.exposition.server import ExpositionServer
from orion.injection.agent_link import AgentLink
from orion.injection.configuration import Configuration
from orion.injection.describing import Places
from orion.injection.fail_closed import FailClosedPods
from orion.injection.installing import HookFolder
from orion.injection.program import run_until_signal
from orion.injection.removed_folders import until_removed
from orion.injection.slots import Resource
from orion.injection.snapshot import SnapshotFile

SNAPSHOT_FILE, FAIL_CLOSED_FILE = "device-plugin.json", "device-plugin-fail-closed.json"

_log = logging.getLogger(__name__)


def run(settings: PluginSettings) -> None:
    """Serve until SIGTERM or SIGINT. Running containers continue after that.

    Raises:
        Unreadable: the configuration file is invalid.
        Exhausted: the hook cannot be installed on the node.
        Conflict: the kubelet speaks another version of the protocol.
        Unavailable: somebody has removed a folder that the plugin's container mounts.
        OSError: the metrics address cannot be bound, or the package has no hook.
    """
    run_until_signal("device plugin", lambda: Plugin(settings))


class Plugin:
    """All parts of one plugin. Create it inside a running event loop.

    Raises:
        Unreadable: the configuration file is invalid.
        OSError: the package has no hook.
    """

    def __init__(self, settings: PluginSettings) -> None:
        self.metrics, self.advertised = Metrics(), Advertised(settings.by_node)
        root = settings.root.absolute()
        labels = root / LABELS_FILE if settings.node else None
        self.configuration = Configuration(settings.configuration, labels)
        self._files = HookFolder(settings.hook_folder)
        self._folder = KubeletFolder(settings.kubelet_folder)
        self._checkpoint = self._folder.path / checkpoint.NAME
        self._mounted = (root, self._folder.path, self._files.base)
        fail_closed = FailClosedPods(root / FAIL_CLOSED_FILE)
        self._link = AgentLink(
            root,
            self.advertised,
            SnapshotFile(root / SNAPSHOT_FILE),
            fail_closed,
            self.metrics.agent_connected.set,
            settings.agent_patience,
        )
        allocator = Allocator(
            Places(root, settings.host, self._files),
            lambda: self.advertised.snapshot,
            lambda: self.advertised.waiting.why,
            lambda: self.configuration.settings,
        )
        starter = Starter(
            root, self._link, self._files, self._checkpoint, fail_closed, lambda: self.configuration.settings
        )
        self._endpoints = [
            Endpoint(
                resource,
                self._folder,
                lambda resource=resource: DevicePluginService(  # type: ignore[misc]
                    resource, self.advertised, allocator, starter, self.metrics
                ),
            )
            for resource in Resource
        ]
        self._registrations = [
            Registration(endpoint, self._folder, self.advertised, self.metrics) for endpoint in self._endpoints
        ]
        # Any answer proves liveness, because the process ends when one of its parts fails.
        answers = Answers(self.metrics.text, self._unready)
        self._exposition = ExpositionServer(answers, settings.metrics_address) if settings.metrics_address else None

    async def run(self) -> None:
        """Serve for ever.

        Raises:
            Exhausted: the hook cannot be installed on the node.
            Conflict: the kubelet speaks another version of the protocol.
            Unavailable: somebody has removed a folder that the plugin's container mounts.
            OSError: the metrics address cannot be bound.
        """
        self.metrics.follow(self.advertised)
        self._files.install()
        async with contextlib.AsyncExitStack() as stack:
            if self._exposition is not None:
                stack.push_async_callback(self._exposition.stop)
            stack.push_async_callback(self._link.close)
            for endpoint in self._endpoints:
                stack.push_async_callback(endpoint.stop)
            self._link.recall()
            await self._work()

    async def _work(self) -> None:
        parts = [
            *([self._exposition.start_when_free()] if self._exposition is not None else []),
            self._link.listen(),
            self.configuration.follow(self._count_change),
            self.advertised.waiting.follow(self.metrics.waits.set),
            sweep_for_ever(self._files, self._checkpoint),
            until_removed(self._mounted),
            *(each.run() for each in self._registrations),
        ]
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _count_change(self, change: Change) -> None:
        self.metrics.configurations.labels(change.value).inc()

    def _unready(self) -> str:
        """Return what the plugin waits for, as a sentence; empty if it is ready."""
        if self.advertised.snapshot is None:
            return "the node's agent has not yet reported its GPUs"
        lost = [each.resource for each in self._registrations if not each.stands]
        return f"the kubelet does not watch {' and '.join(lost)}" if lost else ""
