"""The watches: stores objects that kopf reports in the state, and queues the objects that a change concerns.

The reconciler uses kopf's lists, whose objects `listing` takes, its watches (`on.event`), and their restart after an
interruption.
The reconciler does not use:
- kopf's change detection. It writes the last state of every object into an annotation, and a level-triggered reconciler
  does not need it.
- kopf's logins. kopf gets a session of `api_server`, so that all requests use the same renewed token.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import aiohttp
import kopf

from orion.api_server.access import Access
from orion.api_server.paths import NODES, PODS, SHARES
from orion.crds.annotations import PRIORITY_LABEL
from orion.crds.model import GROUP, VERSION
from orion.operator.reconciler import records
from orion.operator.reconciler.controller import Controller
from orion.operator.reconciler.keys import Key
from orion.operator.reconciler.records import Named
from orion.operator.reconciler.state import State
from orion.operator.reconciler.usage import named_pods

_LOG = logging.getLogger(__name__)

_PODS = ("", "v1", "pods")
_UNKNOWN_MAX, _DEVICES_AT_ONCE = 1_000, 200

PROGRAM = "orion-operator"
""" The operator's User-Agent, as in the API server's audit log. """

READ = "READ"
""" The type of the event in which `Resync` reports a pod that it has read by its name. """


class Intake:
    """Stores watch events in the state. The events of one object must arrive in order.

    An event can be older than the answer to a write of this process, which is already in the state. Such an event is
    ignored; a newer one will follow. An object from a list is always stored, because all resourceVersions are lower
    after etcd was restored from a backup. A pod that was `READ` by its name may have the version of its metadata, which
    is in the state already.
    """

    def __init__(self, state: State, controller: Controller) -> None:
        self._state, self._controller = state, controller
        self._takers = {"pods": self.pod, "nodes": self.node, "gpushares": self.share, "gpudevices": self.device}
        self._all_known = False
        self.unknown: set[Named] = set()
        """ Pods that GPUDevices name and that are not in the state with their node, once all objects are known. """
        self.unnamed: set[tuple[str, str]] = set()
        """ Pods of which GPUDevices have only the uid: node and uid. """
        self.listed_again = False
        """ A watch has listed again since `Resync` has last compared, so deletions may have been missed. """
        self.noticed = asyncio.Event()
        """ Is set when there is something that `Resync` should not wait with. """

    def take(self, plural: str, event: Mapping[str, Any]) -> None:
        """Process an event of one kind. Ignore an object that triggers a bug."""
        try:
            self._takers[plural](event)
        except Exception:
            _LOG.exception("a bug in Orion: object %s is ignored", event["object"]["metadata"]["uid"])

    def list_again(self) -> None:
        """Learn that a list begins again."""
        self.listed_again = True
        self.noticed.set()

    def pod(self, event: Mapping[str, Any]) -> None:
        """Process an event of a pod.

        A pod that has ended may still hold slots, by what the kubelet says, so it is kept. Other pods that have ended
        do not matter, and a cluster may have ten thousand of them.
        """
        new = records.pod_record(event["object"])
        old = self._state.pod(new.at)
        if self._is_newer(event, new, old):
            dropped = new.ended and not new.slots
            self._controller.changed(self._state.drop_pod(new.at) if dropped else self._state.put_pod(new))
        elif event["type"] == "DELETED" and old is not None and old.uid == new.uid:
            self._controller.changed(self._state.drop_pod(new.at))

    def other_pod(self, new: records.PodRecord) -> None:
        """Process a pod without annotations of Orion, of which only the metadata was read.

        It says nothing new about a pod with slots. What else was read of the pod before stays.
        """
        old = self._state.pod(new.at)
        if (old is None or old.priority is None) and self._is_newer({"type": "ADDED"}, new, old):
            if old is not None and old.uid == new.uid:
                new = replace(new, node=old.node, running=old.running, is_static=old.is_static)
            self._controller.changed(self._state.put_pod(new))

    def ended_without_label(self) -> set[Named]:
        """Return the pods in memory that have ended and lack the label."""
        pods = (each for each in self._state.pods_and_shares() if isinstance(each, records.PodRecord))
        return {each.at for each in pods if each.ended and not each.labelled}

    def gone(self, at: Named) -> None:
        """Drop a pod that `ended_without_label` has returned. A later pod of the same name stays."""
        old = self._state.pod(at)
        if old is not None and old.ended and not old.labelled:
            self._controller.changed(self._state.drop_pod(at))

    def share(self, event: Mapping[str, Any]) -> None:
        """Process an event of a GPUShare."""
        new = records.share_record(event["object"])
        old = self._state.share(new.at)
        if self._is_newer(event, new, old):
            self._controller.changed(self._state.put_share(new))
        elif event["type"] == "DELETED" and old is not None and old.uid == new.uid:
            self._controller.changed(self._state.drop_share(new.at))

    def device(self, event: Mapping[str, Any]) -> None:
        """Process an event of a GPUDevice."""
        new = records.device_record(event["object"])
        old = self._state.devices.get(new.name)
        if self._is_newer(event, new, old):
            self._controller.changed(self._state.put_device(new, time.monotonic()))
            self._note_unknown(new)
        elif event["type"] == "DELETED" and old is not None and old.uid == new.uid:
            self._controller.changed(self._state.drop_device(new.name))

    def node(self, event: Mapping[str, Any]) -> None:
        """Process an event of a node."""
        new = records.node_record(event["object"])
        old = self._state.nodes.get(new.name)
        if self._is_newer(event, new, old):
            if old is None or _shown(old) != _shown(new):
                self._controller.changed(self._state.put_node(new))
            else:
                self._state.put_node(new)  # kubelets update their node all the time, and nothing depends on that
        elif event["type"] == "DELETED" and old is not None and old.uid == new.uid:
            self._controller.changed(self._state.drop_node(new.name))

    def drop_missing(self, path: str, uids: set[str], version: int) -> set[Key]:
        """Drop objects of one kind that no longer exist; return the keys of the objects that this concerns.

        Args:
            path: the API path of the kind's list.
            uids: the uids of all existing objects of the kind.
            version: the resourceVersion of the list with these uids. Objects with a later version are kept.
        """
        keys: set[Key] = set()
        for record in self._known(path):
            if record.uid in uids or record.version > version:
                continue
            if isinstance(record, records.PodRecord) and record.ended and not record.labelled:
                continue  # `Resync` does not list such pods: kopf reports their deletion, or `Resync` reads each one
            if isinstance(record, records.PodRecord):
                keys |= self._state.drop_pod(record.at)
            elif isinstance(record, records.ShareRecord):
                keys |= self._state.drop_share(record.at)
            elif isinstance(record, records.DeviceRecord):
                keys |= self._state.drop_device(record.name)
            else:
                keys |= self._state.drop_node(record.name)
        return keys

    def _known(self, path: str) -> list[records.Record]:
        if path == PODS:
            return [each for each in self._state.pods_and_shares() if isinstance(each, records.PodRecord)]
        if path == SHARES:
            return [each for each in self._state.pods_and_shares() if isinstance(each, records.ShareRecord)]
        return list(self._state.nodes.values() if path == NODES else self._state.devices.values())

    async def all_known(self) -> None:
        """Learn that all objects have been listed."""
        self._all_known = True
        for number, device in enumerate(tuple(self._state.devices.values())):
            self._note_unknown(device)
            if number % _DEVICES_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _note_unknown(self, device: records.DeviceRecord) -> None:
        if not self._all_known or len(self.unknown) + len(self.unnamed) >= _UNKNOWN_MAX:
            return
        # A pod without a node is not known, either: only its metadata was read, or the watch is late.
        pods = {at: self._state.pod(at) for at in named_pods(device)}
        found = {at for at, pod in pods.items() if pod is None or not pod.node} - self.unknown
        self.unknown |= found
        rows, node = device.status.unmanaged or (), device.status.node or ""
        unnamed = {(node, row.pod_uid) for row in rows if node and row.pod_uid} - self.unnamed
        self.unnamed |= unnamed
        if found or unnamed:
            self.noticed.set()

    def _is_newer(self, event: Mapping[str, Any], new: records.Record, old: records.Record | None) -> bool:
        if event["type"] == "DELETED":
            return False
        if event["type"] is None or old is None or old.uid != new.uid:
            return True
        return new.version > old.version or (event["type"] == READ and new.version == old.version)


def registry(intake: Intake, access: Access, response: type[aiohttp.ClientResponse]) -> kopf.OperatorRegistry:
    """Return kopf's handlers. `response` is the class of the answers to kopf's requests."""
    found = kopf.OperatorRegistry()

    @kopf.on.login(registry=found)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(server=access.url, aiohttp_session=access.session(PROGRAM, response))

    for resource in (
        _PODS,
        ("", "v1", "nodes"),
        (GROUP, VERSION, "gpushares"),
        (GROUP, VERSION, "gpudevices"),
    ):
        kopf.on.event(*resource, id=f"take-{resource[2]}", registry=found)(handler(intake, resource[2]))
    return found


def handler(intake: Intake, plural: str) -> Any:
    """Return the handler of kopf that passes the events of one kind to `intake`."""

    async def handle(event: Any, **_: Any) -> None:
        intake.take(plural, event)
        # kopf's views of an object refer to each other, so only a collection of garbage frees them. The object itself,
        # which is much larger, is freed here.
        event["object"].clear()

    return handle


class NothingStored(kopf.DiffBaseStorage):
    """A storage for kopf that stores nothing. kopf would otherwise compare deep copies of every object without need."""

    def build(self, **_: Any) -> Any:
        """Return the part of an object that kopf compares: nothing."""
        return {}

    def fetch(self, **_: Any) -> Any:
        """Return the object that kopf handled last: none."""
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""


class WatchedPods:
    """Which pods kopf watches: those with the webhook's label, or all while pods of ours are older than the label.

    kopf reads its settings before each request. So a change counts from the next request of a watch on, at the latest
    after `server_timeout`.
    """

    def __init__(self, settings: kopf.OperatorSettings) -> None:
        self._selectors = settings.watching.label_selectors

    @property
    def all(self) -> bool:
        """Whether all pods are watched."""
        return _PODS not in self._selectors

    def choose(self, all_pods: bool) -> None:
        """Watch all pods, or only those with the label."""
        if all_pods:
            self._selectors.pop(_PODS, None)
        else:
            self._selectors[_PODS] = PRIORITY_LABEL


def kopf_settings() -> kopf.OperatorSettings:
    """Return kopf's settings. The settings of posting, peering and persistence keep kopf from writing objects."""
    found = kopf.OperatorSettings()
    found.posting.enabled = False
    found.posting.loggers = False
    found.peering.standalone = True
    # The kinds exist before the operator starts. Without scans, the operator needs no right to read definitions.
    found.scanning.disabled = True
    found.persistence.finalizer = "orion.gpu/finalizer"
    found.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    found.persistence.diffbase_storage = NothingStored()
    found.watching.server_timeout = 300
    found.watching.client_timeout = 330
    found.watching.connect_timeout = 5
    found.watching.inactivity_timeout = 70
    found.watching.chunk_size = 100  # a page is parsed without a pause
    found.networking.request_timeout = 30
    found.networking.connect_timeout = 5
    found.networking.error_backoffs = (0.2, 0.5, 1, 1, 2, 3, 5, 8, 13, 13, 13)
    found.networking.enforce_retry_after = True
    found.queueing.idle_timeout = 0.1  # of the task that kopf makes for each object with an event
    found.process.ultimate_exiting_timeout = None  # `Shutdown` ends the process, and says what did not stop
    return found


def _shown(node: records.NodeRecord) -> tuple[object, ...]:
    """Return what decisions read of a node."""
    return node.uid, node.labels, node.starting, node.hp_slots, node.allocation
