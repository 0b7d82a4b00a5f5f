"""The watches: what kopf sees goes into the state, and the objects that it concerns into the queue.

Of kopf only `on.event` is used: lists, watches, and what to do when one is cut or too old. Its change detection keeps
what it last saw in an annotation of every object: writes, for what a level-triggered reconciler never asks. Its logins
are not used either: it gets a session that says who we are, so that a renewed token is everywhere the same.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import kopf

from orion.api_server.access import Access
from orion.api_server.paths import NODES, PODS, SHARES
from orion.crds.model import GROUP, VERSION
from orion.operator.reconciler import records
from orion.operator.reconciler.controller import Controller
from orion.operator.reconciler.state import Key, State

_LOG = logging.getLogger(__name__)

PROGRAM = "orion-operator"
""" What the API server's audit log calls the operator. """

NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
""" The API server tells of a pod that ends as of one that is deleted. """


Record = records.PodRecord | records.ShareRecord | records.DeviceRecord | records.NodeRecord


class Intake:
    """Takes in events, those of an object in their order.

    An event may be older than what a write of this process was answered; it is passed over, as the next one is on its
    way. One from a list is always taken: after a restored backup all versions are lower.
    """

    def __init__(self, state: State, controller: Controller) -> None:
        self._state, self._controller = state, controller
        self.seen: set[str] = set()
        """ The uids of all objects that are known. """

    def pod(self, event: Mapping[str, Any]) -> None:
        """Take in an event of a pod."""
        new = records.pod_record(event["object"])
        old = self._state.pod(new.at)
        if self._is_news(event, new, old):
            self._controller.changed(self._state.put_pod(new))
        elif event["type"] == "DELETED" and old is not None and old.uid == new.uid:
            self._controller.changed(self._state.drop_pod(new.at))

    def share(self, event: Mapping[str, Any]) -> None:
        """Take in an event of a GPUShare."""
        new = records.share_record(event["object"])
        old = self._state.share(new.at)
        if self._is_news(event, new, old):
            self._controller.changed(self._state.put_share(new))
        elif event["type"] == "DELETED" and old is not None and old.uid == new.uid:
            self._controller.changed(self._state.drop_share(new.at))

    def device(self, event: Mapping[str, Any]) -> None:
        """Take in an event of a GPUDevice."""
        new = records.device_record(event["object"])
        old = self._state.devices.get(new.name)
        if self._is_news(event, new, old):
            self._controller.changed(self._state.put_device(new))
        elif event["type"] == "DELETED" and old is not None and old.uid == new.uid:
            self._controller.changed(self._state.drop_device(new.name))

    def node(self, event: Mapping[str, Any]) -> None:
        """Take in an event of a node."""
        new = records.node_record(event["object"])
        old = self._state.nodes.get(new.name)
        if self._is_news(event, new, old):
            if old is None or old.uid != new.uid or old.labels != new.labels:
                self._controller.changed(self._state.put_node(new))
            else:
                self._state.put_node(new)  # a kubelet tells of itself all the time
        elif event["type"] == "DELETED" and old is not None and old.uid == new.uid:
            self._controller.changed(self._state.drop_node(new.name))

    def drop_missing(self, path: str, uids: set[str], version: int) -> set[Key]:
        """Forget objects of one kind that are known and not there; return the objects that this concerns.

        Args:
            path: of the kind's list.
            uids: what is there.
            version: of the store, when that was so; what was changed after it is not judged.
        """
        keys: set[Key] = set()
        for record in self._known(path):
            if record.uid in uids or record.version > version:
                continue
            self.seen.discard(record.uid)
            if isinstance(record, records.PodRecord):
                keys |= self._state.drop_pod(record.at)
            elif isinstance(record, records.ShareRecord):
                keys |= self._state.drop_share(record.at)
            elif isinstance(record, records.DeviceRecord):
                keys |= self._state.drop_device(record.name)
            else:
                keys |= self._state.drop_node(record.name)
        return keys

    def _known(self, path: str) -> list[Record]:
        if path == PODS:
            return [each for each in self._state.pods_and_shares() if isinstance(each, records.PodRecord)]
        if path == SHARES:
            return [each for each in self._state.pods_and_shares() if isinstance(each, records.ShareRecord)]
        return list(self._state.nodes.values() if path == NODES else self._state.devices.values())

    def _is_news(self, event: Mapping[str, Any], new: Record, old: Record | None) -> bool:
        if event["type"] == "DELETED":
            self.seen.discard(new.uid)
            return False
        self.seen.add(new.uid)
        if old is not None and old.uid != new.uid:
            self.seen.discard(old.uid)
        return event["type"] is None or old is None or old.uid != new.uid or new.version > old.version


def registry(intake: Intake, access: Access) -> kopf.OperatorRegistry:
    """Return kopf's handlers."""
    found = kopf.OperatorRegistry()

    @kopf.on.login(registry=found)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(server=access.url, aiohttp_session=access.session(PROGRAM))

    for resource, take in (
        (("", "v1", "pods"), intake.pod),
        (("", "v1", "nodes"), intake.node),
        ((GROUP, VERSION, "gpushares"), intake.share),
        ((GROUP, VERSION, "gpudevices"), intake.device),
    ):
        kopf.on.event(*resource, id=f"take-{resource[2]}", registry=found)(_handler(intake, take))
    return found


def _handler(intake: Intake, take: Callable[[Any], None]) -> Any:
    async def handler(event: Any, **_: Any) -> None:
        try:
            take(event)
        except Exception:
            # An object that we stumble over is left out, and does not keep the operator from being ready.
            uid = event["object"]["metadata"]["uid"]
            intake.seen.add(uid)
            _LOG.exception("a fault in Orion: object %s is left out", uid)

    return handler


class NothingStored(kopf.DiffBaseStorage):
    """kopf's memory of what it last handled: none. It would compare deep copies of each body to no end."""

    def build(self, **_: Any) -> Any:
        """Return what of a body is compared: nothing."""
        return {}

    def fetch(self, **_: Any) -> Any:
        """Return what was handled last: it is not known."""
        return None

    def store(self, **_: Any) -> None:
        """Keep nothing."""


def kopf_settings() -> kopf.OperatorSettings:
    """Return kopf's settings for production; those that write are there so that nothing of kopf's own is written."""
    reported = kopf.OperatorSettings()
    reported.posting.enabled = False
    reported.posting.loggers = False
    reported.peering.standalone = True
    reported.scanning.disabled = True  # the kinds are there before the operator is; saves rights on definitions
    reported.persistence.finalizer = "orion.gpu/finalizer"
    reported.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    reported.persistence.diffbase_storage = NothingStored()
    reported.watching.server_timeout = 300
    reported.watching.client_timeout = 330
    reported.watching.connect_timeout = 5
    reported.watching.inactivity_timeout = 70
    reported.watching.chunk_size = 250
    reported.watching.field_selectors["", "v1", "pods"] = NOT_ENDED
    reported.networking.request_timeout = 30
    reported.networking.connect_timeout = 5
    reported.networking.error_backoffs = (0.2, 0.5, 1, 1, 2, 3, 5, 8, 13, 13, 13)
    reported.networking.enforce_retry_after = True
    reported.queueing.idle_timeout = 1
    reported.process.ultimate_exiting_timeout = 20
    return reported
