"""Posts Kubernetes Events of the agent about pods, GPUs and the node, each once.

Callers report a problem again and again while it lasts; `Events` posts it once. The name of an Event contains a hash of
its object, reason and key. So a restarted agent cannot post it again: the API server rejects the name for the hour that
it keeps Events. A tenant can cause many Events, so their rate is limited for each object and for the node. An Event
over the limit is posted later if the problem still lasts.
"""

import asyncio
import logging
import random
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from orion.api_server.events import event, event_name, path_of
from orion.api_server.requests import ApiError, ApiServer
from orion.crds.device import device_name
from orion.crds.model import API_VERSION
from orion.node_agent.pacing.token_bucket import TokenBucket
from orion.node_agent.slots.holders import Holder

_log = logging.getLogger(__name__)

_QUEUE_MAX = 256
_NAMES_MAX = 8_192
_SUBJECTS_MAX = 1_024
_BURST, _PER_SECOND = 8, 1 / 30
""" The limits of the Events about one object. """
_NODE_BURST, _NODE_PER_SECOND = 64, 1.0
_BACKOFF_SECONDS = (0.5, 30.0)
_CONFLICT, _TOO_MANY, _OWN_FAILURE = 409, 429, 500
_TRIES = 5
""" So often the API server may fail at one Event before others have their turn: it may fail at this one alone. """


@dataclass(frozen=True)
class Subject:
    """The object that an Event is about."""

    kind: str
    name: str
    uid: str
    api_version: str = "v1"
    namespace: str = ""


def pod(holder: Holder) -> Subject:
    """Return a pod as the object of an Event."""
    return Subject("Pod", holder.pod, holder.uid, namespace=holder.namespace)


def node(name: str) -> Subject:
    """Return a node as the object of an Event; its name is also its uid, as in the kubelet's own Events."""
    return Subject("Node", name, name)


def device(uuid: str, uid: str) -> Subject:
    """Return a GPUDevice as the object of an Event."""
    return Subject("GPUDevice", device_name(uuid), uid, API_VERSION)


class Events:
    """Posts the Events of one agent.

    Args:
        server: the API server.
        node_name: this node's name.
    """

    def __init__(self, server: ApiServer, node_name: str) -> None:
        self._server, self._node = server, node_name
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_QUEUE_MAX)
        self._posted_names: OrderedDict[str, None] = OrderedDict()
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._bucket = TokenBucket(_NODE_BURST, _NODE_PER_SECOND)
        self.posted = 0
        self.failed = 0

    def post(self, about: Subject, reason: str, note: str, *, warning: bool = True, key: str | None = None) -> None:
        """Post an Event, unless it was posted already.

        Args:
            about: the object; without a uid, nothing is posted.
            reason: one CamelCase word.
            note: what happens, why, and what to do next.
            warning: the Event's type; false: Normal.
            key: Events with the same object, reason and key count as the same; None: the note is the key.
        """
        if not about.uid:
            return
        name = event_name(about.name, about.uid, reason, note if key is None else key)
        if name in self._posted_names or self._queue.full() or self._over_the_bound(about):
            return
        self._posted_names[name] = None
        if len(self._posted_names) > _NAMES_MAX:
            self._posted_names.popitem(last=False)
        self._queue.put_nowait(self._body(about, name, reason, note, warning))

    async def run(self) -> None:
        """Post the queued Events until cancelled, in order unless the API server fails at one again and again."""
        while True:
            body = await self._queue.get()
            if await self._end(body):
                continue
            if self._queue.full():
                self._posted_names.pop(body["metadata"]["name"], None)  # it is posted later if the problem still lasts
            else:
                self._queue.put_nowait(body)

    async def _end(self, body: dict[str, Any]) -> bool:
        """Post an Event, with further tries; return False if others should have their turn first."""
        delay, failures = _BACKOFF_SECONDS[0], 0
        while (status := await self._post(body)) is not None:
            failures += status >= _OWN_FAILURE
            if failures == _TRIES:
                return False
            await asyncio.sleep(delay * random.uniform(0.5, 1))
            delay = min(2 * delay, _BACKOFF_SECONDS[1])
        return True

    async def _post(self, body: dict[str, Any]) -> int | None:
        """Return why the Event needs a further try, as a status; None: it was posted, or rejected for good."""
        try:
            await self._server.post(path_of(body), body)
        except ApiError as error:
            if error.status in (0, _TOO_MANY) or error.status >= _OWN_FAILURE:
                self.failed += 1
                return error.status
            if error.status != _CONFLICT:  # on a conflict, the previous agent has posted it
                self.failed += 1
                _log.warning("an Event cannot be posted (%s): %s: %s", error, body["reason"], body["note"])
        else:
            self.posted += 1
        return None

    def _over_the_bound(self, about: Subject) -> bool:
        bucket = self._buckets.pop(about.uid, None) or TokenBucket(_BURST, _PER_SECOND)
        self._buckets[about.uid] = bucket
        if len(self._buckets) > _SUBJECTS_MAX:
            self._buckets.popitem(last=False)
        return bool(bucket.take() or self._bucket.take())

    def _body(self, about: Subject, name: str, reason: str, note: str, warning: bool) -> dict[str, Any]:
        regarding = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
        if about.namespace:
            regarding["namespace"] = about.namespace
        return event(name, regarding, warning, reason, "Watch", note, "orion.gpu/agent", self._node)
