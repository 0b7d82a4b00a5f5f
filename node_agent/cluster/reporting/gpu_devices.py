"""Keeps the GPUDevice of each of this node's GPUs: creates it, writes its status, and applies its spec.

At intervals the agent compares the wanted status with the status that the API server has, and writes the difference if
it is large enough. So no change is lost while the API server does not answer. When the API server answers again, the
agent writes only the current state.

In this module, a device is a GPUDevice object. The status of a device names the device's node. An agent writes devices
that name its node, or no node. It takes over a device of another node when the agent of that node has reported the GPU
as gone, or when that node no longer exists. Each write names the resourceVersion that it replaces, so two agents never
overwrite each other. An agent watches the devices of its own node only.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orion.api_server.merging import merge_patch
from orion.api_server.paths import DEVICES, NODES
from orion.api_server.requests import ApiError, ApiServer
from orion.api_server.watching import Watched
from orion.crds.device import KIND, GPUDeviceSpec, device_name
from orion.crds.device_status import GPUDeviceStatus
from orion.crds.model import API_VERSION
from orion.errors import Unreadable
from orion.node_agent.advertising.advertising import Verdict
from orion.node_agent.cluster.reporting.cordons import Cordons
from orion.node_agent.cluster.reporting.status_urgency import Urgency, urgency

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_SETTLE_SECONDS = 0.1
""" Changes within this time are written together. """
_BACKOFF_SECONDS = (0.5, 30.0)
_ECHO_SECONDS = 5.0
""" How long the agent waits until the watch shows a write. After this time it uses the answer to that write: the API
server that serves the watch may have ended without a word, and others serve the writes. """
_ELSEWHERE_SECONDS = 5.0
""" A device of another node is not watched; it is read again after this time. """
_CONFLICT, _GONE, _FORBIDDEN = 409, 404, 403


@dataclass(frozen=True)
class Device:
    """A GPUDevice as the API server has it."""

    name: str
    uid: str
    version: str
    generation: int | None
    spec: GPUDeviceSpec
    plain: Mapping[str, Any]
    """ The device's status, as JSON. """
    status: GPUDeviceStatus
    """ The device's status, as far as the agent can read it. """


def read(plain: Mapping[str, Any]) -> Device:
    """Return what is kept of a GPUDevice, without what cannot be read of its status.

    If a spec of a later version cannot be read, the spec's cordon still applies, and the GPU's mode stays.
    """
    meta, status = plain["metadata"], plain.get("status") or {}
    known = GPUDeviceStatus.read_known(status)
    plain_spec = plain.get("spec") or {}
    try:
        spec = GPUDeviceSpec.read(plain_spec)
    except Unreadable:
        spec = GPUDeviceSpec(cordon=plain_spec.get("cordon") is True)
        if known.mode is not None:
            spec = spec.model_copy(update={"mode": known.mode})
    return Device(meta["name"], meta["uid"], meta["resourceVersion"], meta.get("generation"), spec, dict(status), known)


Make = Callable[[str, Device], GPUDeviceStatus]
""" Makes the status of a device, from the GPU's UUID; an empty UUID: the GPU is not on this node. """


@dataclass
class _Track:
    """The writes of one device."""

    not_before: float = 0.0
    failures: int = 0
    written: float = field(default_factory=lambda: float("-inf"))
    replaced: set[str] = field(default_factory=set)
    """ The resourceVersions that writes have replaced, this agent's and others', until the watch shows another one. """
    latest: Device | None = None
    """ The device as the last write left it, or as it was read since; None: not known. """
    elsewhere: str = ""
    """ The node that the device's status names, if that is another node. """


class GpuDevices:
    """The GPUDevices of one node; also a judge: a cordon (`spec.cordon`) closes a GPU to new pods (advertising.py).

    Args:
        server: the API server.
        node: this node's name.
        cordons: receives the names of all cordoned devices.
        here: reads the state of this node's GPUs, and returns their UUIDs.
        make: makes a device's status from that state.
        reported: called before a status is written, with the old device and the new status.
        spec_changed: called on the event loop when a spec has changed.
    """

    def __init__(
        self,
        server: ApiServer,
        node: str,
        cordons: Cordons,
        here: Callable[[], Awaitable[Iterable[str]]],
        make: Make,
        reported: Callable[[Device, GPUDeviceStatus], None],
        spec_changed: Callable[[], None],
    ) -> None:
        self._server, self._node, self._cordons = server, node, cordons
        self._here, self._make, self._reported, self._spec_changed = here, make, reported, spec_changed
        self._watched: Watched[Device, dict[str, Device]] = Watched(
            server,
            DEVICES,
            read,
            lambda devices: {each.name: each for each in devices},
            by_generation=False,
            query={"fieldSelector": f"status.node={node}"},
            on_change=self._received,
        )
        self._specs: dict[str, GPUDeviceSpec] | None = None
        self._tracks: dict[str, _Track] = {}
        self._wake = asyncio.Event()
        self.writes = 0
        self.failures = 0

    def wake(self) -> None:
        """Check all devices soon, because something may have changed. Call it on the event loop."""
        self._wake.set()

    def elsewhere(self, uuid: str) -> str:
        """Return the other node that the device of a GPU on this node names; empty: it names this node."""
        track = self._tracks.get(device_name(uuid))
        return track.elsewhere if track else ""

    def verdict(self, uuid: str) -> Verdict:
        """Return whether people have cordoned the GPU."""
        return self._cordons.verdict(device_name(uuid))

    async def run(self) -> None:
        """Keep the devices current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watched.run())
            tasks.create_task(self._keep())

    async def _keep(self) -> None:
        await self._watched.synced.wait()
        while True:
            self._wake.clear()
            uuids = {device_name(uuid): uuid for uuid in await self._here()}
            names = uuids.keys() | self._watched.of("").keys()
            await asyncio.gather(*(self._update(name, uuids.get(name, "")) for name in names))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._wake.wait()
            await asyncio.sleep(_SETTLE_SECONDS)

    def _received(self) -> None:
        specs = {name: self._newest(device).spec for name, device in self._watched.of("").items()}
        changed, self._specs = specs != self._specs, specs
        self._cordons.set(name for name, spec in specs.items() if spec.cordon)
        if changed:
            self._spec_changed()
        self._wake.set()

    def _newest(self, device: Device) -> Device:
        """Return what was read of a device after a conflict, until the watch shows as much."""
        track = self._tracks.get(device.name)
        return track.latest if track and track.latest and device.version in track.replaced else device

    # -- One device ----------------------------------------------------------------------------------------------------

    async def _update(self, name: str, uuid: str) -> None:
        track = self._tracks.setdefault(name, _Track())
        now = time.monotonic()
        if now < track.not_before:
            return
        device = self._watched.of("").get(name)
        if track.replaced and (device is None or device.version in track.replaced):
            if now < track.written + _ECHO_SECONDS:
                return
            device = track.latest if device is not None else None
        else:
            track.replaced, track.latest = set(), None
        try:
            if device is None:
                device = track.latest = await self._own(name, track)
                if device is not None and (self._specs or {}).get(name, device.spec) != device.spec:
                    self._received()  # before the status says that this generation holds, such as its cordon
                    return
            if device is not None:
                await self._write(device, uuid, track)
            track.failures = 0
        except ApiError as error:
            self._failed(name, track, error)
        except Exception:  # a bug that affects one device must not stop the writes of the others
            _log.exception("GPUDevice %s: its status cannot be made", name)
            track.not_before = now + _BACKOFF_SECONDS[1]

    async def _own(self, name: str, track: _Track) -> Device | None:
        """Read or create a device that the watch does not show; return None if it belongs to another node."""
        try:
            device = read(await self._server.get(f"{DEVICES}/{name}"))
        except ApiError as error:
            if error.status != _GONE:
                raise
            body = {"apiVersion": API_VERSION, "kind": KIND.name, "metadata": {"name": name}, "spec": {}}
            return read(await self._server.post(DEVICES, body))
        other = device.plain.get("node") or ""
        if other in ("", self._node):
            track.elsewhere = ""
            return device
        if device.status.health == "Unknown" or not await self._is_node(other):
            return device
        self._leave_to(other, name, track)
        return None

    def _leave_to(self, other: str, name: str, track: _Track) -> None:
        """Leave a device to another node until it is read again."""
        if track.elsewhere != other:
            _log.warning("GPUDevice %s names node %s, whose agent has not reported the GPU as gone", name, other)
        track.elsewhere = other
        track.not_before = time.monotonic() + _ELSEWHERE_SECONDS

    async def _is_node(self, name: str) -> bool:
        try:
            await self._server.get(f"{NODES}/{name}")
        except ApiError as error:
            if error.status != _GONE:
                raise
            return False
        return True

    async def _write(self, device: Device, uuid: str, track: _Track) -> None:
        status = self._make(uuid, device)
        plain = status.plain()
        soon = urgency(device.plain, plain)
        if soon is None or time.monotonic() < track.written + soon:
            return  # the next check comes within a second
        before = device.plain.get("node") or self._node
        if before == self._node:
            self._reported(device, status)
        patch = {"metadata": {"resourceVersion": device.version}, "status": merge_patch(device.plain, plain)}
        try:
            answer = await self._server.patch(f"{DEVICES}/{device.name}/status", patch)
        except ApiError as error:
            if error.status == _CONFLICT:
                track.replaced.add(device.version)
            if error.status != _FORBIDDEN or before == self._node:
                raise
            self.failures += 1
            self._leave_to(before, device.name, track)  # an admission policy limits agents to the GPUs of their nodes
            return
        if before != self._node:
            self._reported(device, status)  # only now, since the write could have failed
            track.elsewhere = ""
        self.writes += 1
        track.written = time.monotonic()
        if answer["metadata"]["resourceVersion"] != device.version:
            track.replaced.add(device.version)
            track.latest = read(answer)
        if soon is Urgency.CHANGES:
            _log.info("GPUDevice %s: %s", device.name, status.health)

    def _failed(self, name: str, track: _Track, error: ApiError) -> None:
        track.latest = None
        if error.status == _CONFLICT:
            return  # another writer was faster; the watch will show its write, or the device is read
        self.failures += 1
        delay = min(_BACKOFF_SECONDS[0] * 2**track.failures, _BACKOFF_SECONDS[1]) * random.uniform(0.5, 1)
        track.failures = min(track.failures + 1, 10)
        track.not_before = time.monotonic() + max(delay, error.retry_after_s or 0.0)
        _log.warning("GPUDevice %s: %s; again in %.1f s", name, error, delay)
