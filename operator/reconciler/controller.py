"""Carries out the writes that `decisions` computes: takes objects from the queue, writes, and stores the answers.

The controller stores the answer of a write in the state at once. So it does not write the object again before the watch
reports the change. If the watch has already reported a later change or the deletion, the controller ignores the answer.

The answer also contains changes that other writers made just before, and the watch event of such a change is then
ignored as old. So the controller reconciles the object again if the answer shows a change by another writer. This is
not needed if the write was bound to a resourceVersion. A change that only our write made does not reconcile the object
again: if another writer reverted our change each time, we and the other writer would enter a write loop.

A change of a share may concern every pod of its namespace. The controller applies it in slices of some milliseconds,
and namespaces take turns. So the loop also serves the Lease and other namespaces. The pods and shares of a namespace
wait until its changes are applied.

After a failed write, the object is queued again. The retry decides from the state at that time; no write is kept.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from orion.api_server import events
from orion.api_server.paths import DEVICES, NODES
from orion.api_server.requests import JSON_PATCH, METADATA_LIST, ApiError, ApiServer
from orion.crds.claims import TEMPLATES, path_in
from orion.crds.model import API_VERSION
from orion.operator.reconciler import records, writes
from orion.operator.reconciler.decisions import decide
from orion.operator.reconciler.keys import Key, Kind
from orion.operator.reconciler.metrics import Metrics
from orion.operator.reconciler.missing_gpus import MissingGPUs
from orion.operator.reconciler.state import State
from orion.operator.reconciler.work_queue import WorkQueue

_LOG = logging.getLogger(__name__)

SETTLE = {Kind.POD: 0.0, Kind.SHARE: 0.5, Kind.NODE: 0.2, Kind.DEVICE: 10.0, Kind.NAMESPACE: 0.1, Kind.TEMPLATE: 0.0}
""" Seconds that an object waits in the queue for further changes. A share's status changes with each of its pods. A
GPUDevice waits longest, because a node that is gone may register again. """

_TOO_MANY = 429
""" Too many requests. The API server also answers with it if a disruption budget forbids an eviction. """
_EVICT_AGAIN = 10.0
_GONE = (404, 410)
_REFUSED = (400, 403, 422)
""" The API server will refuse the same object again, until somebody has changed something else. """
_CONFLICT = 409
_SLICE_S = 0.005
""" How long changes of shares are applied before the loop does something else. """
_QUEUED_AT_ONCE = 1_000


class Leader(Protocol):
    """Decides whether this process may write."""

    taken: asyncio.Event

    def mine(self) -> bool:
        """Return whether this process may write now."""


class Controller:
    """Brings objects to their desired state.

    Args:
        state: the watched objects; the controller stores the answers of its writes in it.
        api: the API server.
        leader: decides whether this process may write.
        metrics: counts writes and failures.
        identity: the name of this process in Events.
    """

    def __init__(self, state: State, api: ApiServer, leader: Leader, metrics: Metrics, identity: str) -> None:
        self.state, self.queue = state, WorkQueue[Key](lambda key: key.at.namespace)
        self._api, self._leader, self._metrics, self._identity = api, leader, metrics, identity
        self._missing = MissingGPUs(api)
        self._begun = asyncio.Event()
        self._queueing: asyncio.Task[None] | None = None
        self._slice = asyncio.Lock()
        self.notice: Callable[[], None] = lambda: None
        """ Is called after each change of the state. """

    def changed(self, keys: Iterable[Key]) -> None:
        """Queue the objects that a change may concern. Before `begin` and without the Lease this is not needed."""
        if not self._begun.is_set():
            return
        self.notice()
        for key in keys if self._leader.taken.is_set() else ():
            self.queue.add([key], SETTLE[key.kind])

    async def begin(self) -> None:
        """Start the workers. Call this once all objects have been read: until then, `state` lacks some."""
        self._begun.set()
        if self._leader.taken.is_set():
            await self._queue_all()
        self.notice()

    def leads(self) -> None:
        """Queue all objects: the Lease was just taken. Without it none is queued, as keys of gone pods would stay."""
        if self._begun.is_set():
            self._queueing = asyncio.create_task(self._queue_all())

    async def _queue_all(self) -> None:
        # The delays of SETTLE apply here, too: each kind has its own watch, and nodes may arrive later than their GPUs.
        for number, key in enumerate(self.state.everything(), start=1):
            self.queue.add([key], SETTLE[key.kind])
            if number % _QUEUED_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def work(self) -> None:
        """Reconcile one object after the other while this process may write, until cancelled."""
        while True:
            await self._begun.wait()
            await self._leader.taken.wait()
            key = await self.queue.take()
            try:
                await self._reconcile(key)
            except ApiError as error:
                delay = self.queue.failed(key)
                self._metrics.failures.labels(key.kind).inc()
                level = logging.DEBUG if error.status == _CONFLICT else logging.WARNING
                _LOG.log(level, "%s %s: %s; again in %.1f s", key.kind, "/".join(key.at), error, delay)
            except Exception:
                # A bug that one object triggers must not stop the work on other objects.
                delay = self.queue.failed(key)
                self._metrics.failures.labels(key.kind).inc()
                _LOG.exception("%s %s: a bug in Orion; again in %.1f s", key.kind, "/".join(key.at), delay)
            else:
                self.queue.done(key)
            await asyncio.sleep(0)  # a reconciliation without a write does not wait for anything

    async def _reconcile(self, key: Key) -> None:
        self._metrics.reconciled.labels(key.kind).inc()
        if key.kind is Kind.NAMESPACE:
            await self._catch_up(key)
            return
        if self.state.behind(key.at.namespace):
            self.state.defer(key)
            return
        for write in decide(self.state, key, datetime.now(UTC), time.monotonic()):
            if isinstance(write, writes.RequeueAfter):
                self.queue.add([key], write.seconds)
                return
            if isinstance(write, writes.Remember):
                self.state.remember(write.at, write.uid, write.complaint)
                continue
            if not self._leader.mine():
                self.queue.add([key])  # the holder of the Lease writes; this process reconciles once it holds the Lease
                return
            await self._carry_out(key, write)

    async def _catch_up(self, key: Key) -> None:
        """Apply changes of a namespace's shares for one slice; after the last, queue the objects that they concern."""
        namespace = key.at.namespace
        async with self._slice:
            if self.state.behind(namespace):
                self.state.advance(namespace, time.monotonic() + _SLICE_S)
            await asyncio.sleep(0)
        while not self.state.behind(namespace):
            moved = self.state.moved(namespace, _QUEUED_AT_ONCE)
            if not moved:
                return
            self.changed(moved)
            await asyncio.sleep(0)
        self.queue.add([key])

    async def _carry_out(self, key: Key, write: writes.Write) -> None:
        what, outcome = type(write).__name__, "failed"
        try:
            await self._write(key, write)
            outcome = "done"
        except ApiError as error:
            if error.status in _GONE:
                outcome = "gone"  # the watch or the next resync removes the object from the state
                return
            raise
        finally:
            self._metrics.writes.labels(what, outcome).inc()

    async def _write(self, key: Key, write: writes.Write) -> None:
        if isinstance(write, writes.PatchShare):
            path = f"/apis/{API_VERSION}/namespaces/{write.at.namespace}/gpushares/{write.at.name}/status"
            self._take_share(records.share_record(await self._api.patch(path, write.patch)))
        elif isinstance(write, writes.PatchNode):
            answer = await self._api.patch(f"{NODES}/{write.at.name}", write.patch)
            self._take_node(records.node_record(answer), write.patch["metadata"]["labels"])
        elif isinstance(write, writes.RemoveTaints):
            answer = await self._api.patch(f"{NODES}/{write.at.name}", write.operations, JSON_PATCH)
            self._take_node(records.node_record(answer), {})
        elif isinstance(write, writes.PatchDevice | writes.DeleteDevice):
            await self._release(key, write)
        elif isinstance(write, writes.MakeTemplate):
            await self._make(write)
        elif isinstance(write, writes.PostEvent):
            await self._post(write)
        elif isinstance(write, writes.SayWhatIsMissing):
            if sentence := await self._missing.look(write.shape):
                await self._post(write.event(sentence))
        elif isinstance(write, writes.EvictPod):
            await self._evict(key, write)

    async def _release(self, key: Key, write: writes.PatchDevice | writes.DeleteDevice) -> None:
        """Give up a GPU whose node is gone. The watch of nodes may be late, so ask the API server first."""
        node = self.state.devices[write.at.name].status.node
        if (await self._api.get(NODES, METADATA_LIST, fieldSelector=f"metadata.name={node}"))["items"]:
            self.queue.add([key], SETTLE[key.kind])
            return
        if isinstance(write, writes.DeleteDevice):
            # The watch reports the deletion.
            seen = {"uid": write.uid, "resourceVersion": str(write.version)}
            await self._api.delete(f"{DEVICES}/{write.at.name}", as_seen=seen)
            return
        new = records.device_record(await self._api.patch(f"{DEVICES}/{write.at.name}/status", write.patch))
        old = self.state.devices.get(new.name)
        if old is not None and not _is_late(new, old):
            self.changed(key for key in self.state.put_device(new, time.monotonic()) if key.kind is Kind.SHARE)

    def _take_node(self, new: records.NodeRecord, written: Mapping[str, str | None]) -> None:
        old = self.state.nodes.get(new.name)
        if old is None or _is_late(new, old):
            return
        expected = {**old.labels, **written}
        keys = self.state.put_node(new)
        self.notice()
        if new.labels != {name: value for name, value in expected.items() if value is not None}:
            self.changed(keys)

    def _take_share(self, new: records.ShareRecord) -> None:
        old = self.state.share(new.at)
        if old is None:
            return
        old.written = time.monotonic()  # the state keeps it when it replaces the record
        if not _is_late(new, old):
            self.changed(key for key in self.state.put_share(new) if key.kind is not Kind.SHARE)

    async def _make(self, write: writes.MakeTemplate) -> None:
        try:
            await self._api.post(path_in(write.namespace, TEMPLATES), write.template)
        except ApiError as error:
            if error.status == _CONFLICT:  # it exists
                return
            if error.status in _REFUSED:
                for pod in self.state.templates.waiting(write.at)[:1]:
                    await self._post(_refused(pod, error))
                return
            self.state.templates.failed(write.at)
            raise

    async def _post(self, event: writes.PostEvent) -> None:
        body = events.event(
            event.name,
            event.regarding,
            event.warning,
            event.reason,
            event.action,
            event.note,
            "orion.gpu/operator",
            self._identity,
        )
        try:
            await self._api.post(events.path_of(body), body)
        except ApiError as error:
            if error.status == _CONFLICT:
                return  # an Event with this name, and so with this content, exists
            if error.status in (0, _TOO_MANY) or error.status >= 500:
                raise
            _LOG.warning("an Event could not be posted; the operator goes on without it: %s", error)

    async def _evict(self, key: Key, write: writes.EvictPod) -> None:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": write.at.name, "namespace": write.at.namespace},
            "deleteOptions": {"preconditions": {"uid": write.uid}},
        }
        try:
            await self._api.post(f"/api/v1/namespaces/{write.at.namespace}/pods/{write.at.name}/eviction", eviction)
        except ApiError as error:
            if error.status != _TOO_MANY:
                raise
            _LOG.info("pod %s: its disruption budget forbids the eviction for now", "/".join(write.at))
            self.queue.add([key], _EVICT_AGAIN)
        else:
            # Mark the pod as leaving before the watch reports it, so that the pod is not evicted twice.
            pod = self.state.pod(write.at)
            if pod is not None and pod.uid == write.uid:
                self.changed(self.state.put_pod(replace(pod, leaving=True)))


def _refused(pod: records.PodRecord, error: ApiError) -> writes.PostEvent:
    note = f"the ResourceClaimTemplate of the pod's claim is refused, so the pod gets no GPU: {error}"
    return writes.PostEvent(writes.pod_reference(pod.at, pod.uid), True, "ClaimTemplateRefused", "Govern", note)


def _is_late(answer: records.Record, known: records.Record) -> bool:
    """Return whether the watch has already reported a later state of an object than the answer to a write."""
    return answer.uid != known.uid or answer.version < known.version
