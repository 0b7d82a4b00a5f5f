"""Keeps the node's ResourceSlice equal to the agent's GPUs, with few writes, and makes it again if it is gone.

A kubelet that starts deletes all slices of its node, and people may delete or edit one. A watch shows that at once. A
change of the GPUs is written once nothing has changed for a second, or at the latest after three, as each write wakes
all pods that wait for a GPU. While there is no agent, its last snapshot stays in force: running pods keep their GPUs.

An API server that does not know a field drops it silently. Without `allowMultipleAllocations` a GPU would belong to one
pod alone. So what was stored is compared, and the slice is withdrawn if something is missing. Log, readiness, metric
and an Event of the node say so.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from orion.api_server.requests import ApiError, ApiServer
from orion.api_server.watching import Watched
from orion.crds.claims import DRIVER, SLICES
from orion.crds.node_configuration import NodeSettings
from orion.dra_driver import slices
from orion.dra_driver.metrics import FIELDS_DROPPED, NO_CDI, Metrics
from orion.dra_driver.neighbours import offered_by_others, why_no_cdi
from orion.dra_driver.node_events import NodeEvents
from orion.errors import Unavailable
from orion.injection.current import CurrentSnapshot, Notifier
from orion.injection.waiting import Waiting

_QUIET_SECONDS, _LATEST_SECONDS = 1.0, 3.0
_AGAIN_SECONDS = 2.0
_LOOK_SECONDS = 10.0
""" A driver looks again after this time, since another one may have ended. This needs no request. """
_WITHHELD_SECONDS = 60.0
""" Pause after the API server or the container runtime lacked something: it may be replaced. """

_log = logging.getLogger(__name__)

Plain = Mapping[str, Any]


class Publishing:
    """Publishes the devices of one node.

    Args:
        server: the API server.
        node: the node's name.
        current: the agent's last snapshot.
        waiting: whether the device plugin gives the node's slots, so that there is no slice.
        slot_memory_bytes: the memory of a GPU that is kept for the contexts of each slot.
        settings: returns the settings now in force.
        may_write: returns whether this driver decides; an earlier one of a rolling update does not.
        metrics: the metrics of the process.
    """

    def __init__(
        self,
        server: ApiServer,
        node: str,
        current: CurrentSnapshot,
        waiting: Waiting,
        slot_memory_bytes: int,
        settings: Callable[[], NodeSettings],
        may_write: Callable[[], bool],
        metrics: Metrics,
    ) -> None:
        self._server, self._node, self._current, self._waiting = server, node, current, waiting
        self._slot_memory_bytes, self._settings, self._may_write = slot_memory_bytes, settings, may_write
        self._metrics, self._events = metrics, NodeEvents(server, node)
        self._changed = Notifier()
        selector = f"spec.nodeName={node}"  # of all drivers: another one may offer the same GPUs
        self._stored: Watched[Plain, None] = Watched(
            server,
            SLICES,
            dict,
            lambda _: None,
            by_generation=False,
            query={"fieldSelector": selector},
            on_change=self._changed.notify,
        )
        self._complaint = ""
        self.problem = "the API server has not yet listed the node's ResourceSlices"
        """ Why the slice may not be what it should be, as a sentence; empty: it is. """

    async def run(self) -> None:
        """Keep the slice current until cancelled."""
        watching = asyncio.create_task(self._stored.run())
        try:
            await self._current.first()
            await self._stored.synced.wait()
            while True:
                changed = (self._changed.next, self._current.changed.next)
                await asyncio.sleep(await self._look())
                await _any(changed, _LOOK_SECONDS)
                await self._until_quiet()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _until_quiet(self) -> None:
        """Wait until the GPUs have not changed for a while. A slice that is gone is made at once."""
        latest = time.monotonic() + _LATEST_SECONDS
        while self._own() is not None and (left := latest - time.monotonic()) > 0:
            changed = (self._changed.next, self._current.changed.next)
            if not await _any(changed, min(left, _QUIET_SECONDS)):
                return

    async def _look(self) -> float:
        """Write what differs; return the seconds to wait before the next look."""
        try:
            await self._write()
            self._say("")
            self._metrics.withhold("")
            self._events.over()
        except _Withheld as error:
            self._say(str(error))
            self._metrics.withhold(error.reason)
            await self._events.post(error.reason, str(error))
            self._changed.notify()
            return _WITHHELD_SECONDS
        except ApiError as error:
            if error.status != 409:  # somebody else was faster, and the watch will show it
                self._say(f"the ResourceSlice of node {self._node} cannot be written: {error}")
            self._changed.notify()  # the next look must not wait for a change
            return _AGAIN_SECONDS
        return 0.0

    async def _write(self) -> None:
        """Create, replace or leave the slice; remove others of this driver on this node.

        Raises:
            ApiError: the API server does not answer or refuses.
            _Withheld: it has not stored what was sent, or the node's container runtime cannot give devices.
        """
        if self._current.snapshot is None or not self._may_write():
            return
        if self._waiting.why:
            for each in self._ours():
                _log.info("slices: no GPU is offered to claims any more: %s", self._waiting.why)
                await self._delete(each)
            return
        others = {} if self._settings().coexist else offered_by_others(self._stored.all())
        wanted = slices.devices(self._current.snapshot, self._slot_memory_bytes, others)
        own = self._own()
        for other in self._ours():
            if other is not own:
                _log.warning("slices: %s is not of this driver, and is removed", other["metadata"]["name"])
                await self._delete(other)
        if own is not None and _is_current(own, self._node, wanted):
            return
        pool = own["spec"]["pool"] if own is not None else {"generation": 0}
        node = await self._server.get(f"/api/v1/nodes/{self._node}")
        if why := why_no_cdi(node):
            if own is not None:
                await self._delete(own)
            raise _Withheld(NO_CDI, why)
        body = slices.resource_slice(self._node, node["metadata"]["uid"], pool["generation"] + 1, wanted)
        stored = await self._store(own, body)
        if not slices.same(body["spec"], stored["spec"]):
            await self._delete(stored)
            raise _Withheld(
                FIELDS_DROPPED,
                f"the API server has not stored all fields of the ResourceSlice of node {self._node}, so no GPU is "
                "offered to claims: it needs Kubernetes 1.36 or later, with the feature gate DRAConsumableCapacity",
            )
        _log.info("slices: %d GPUs are offered to claims", len(wanted))

    async def _store(self, own: Plain | None, body: Plain) -> Plain:
        """Create the slice, or replace the own one; return what the API server has stored."""
        if own is not None:
            before, after = own["spec"], body["spec"]
            is_same = all(before.get(name) == after[name] for name in ("driver", "nodeName"))
            if is_same and before["pool"]["name"] == self._node:
                body["metadata"]["resourceVersion"] = own["metadata"]["resourceVersion"]
                return await self._counted(self._server.put(f"{SLICES}/{body['metadata']['name']}", body))
            await self._delete(own)  # these fields cannot be changed
        return await self._counted(self._server.post(SLICES, body))

    def _own(self) -> Plain | None:
        return next((each for each in self._ours() if each["metadata"]["name"] == slices.slice_name(self._node)), None)

    def _ours(self) -> list[Plain]:
        """Return the slices that name this driver; a copy, since the watch goes on meanwhile."""
        return [each for each in self._stored.all() if each["spec"]["driver"] == DRIVER]

    async def _counted(self, request: Any) -> Plain:
        result = "refused"
        try:
            stored: Plain = await request
            result = "ok"
            return stored
        except ApiError as error:
            if error.status == 409:
                result = "conflict"
            raise
        finally:
            self._metrics.slice_writes.labels(result).inc()

    async def _delete(self, plain: Plain) -> None:
        with contextlib.suppress(ApiError):
            await self._server.delete(f"{SLICES}/{plain['metadata']['name']}", plain["metadata"])

    def _say(self, problem: str) -> None:
        if problem and problem != self.problem:
            _log.error("slices: %s", problem)
        self.problem = problem


class _Withheld(Unavailable):
    """The GPUs must not be offered to claims in this cluster or on this node.

    Args:
        reason: why, as one CamelCase word.
        text: why, as a sentence.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def _is_current(own: Plain, node: str, wanted: list[dict[str, Any]]) -> bool:
    spec = own["spec"]
    pool, devices = spec["pool"], spec.get("devices") or []
    return (
        (pool["name"], pool["resourceSliceCount"]) == (node, 1)
        and slices.same(wanted, devices)
        and [_parts(each) for each in wanted] == [_parts(each) for each in devices]
    )


def _parts(device: Plain) -> list[object]:
    """Return which attributes, capacities and taints a device has, so that nothing that was added is overlooked."""
    return [sorted(device.get(name) or ()) for name in ("attributes", "capacity")] + [len(device.get("taints") or ())]


async def _any(events: tuple[asyncio.Event, ...], seconds: float | None = None) -> bool:
    """Wait for one of the events; return whether one has come in time."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for task in waiting:
            task.cancel()
