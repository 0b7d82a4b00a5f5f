"""Registers with the kubelet, and detects when the registration is lost.

The kubelet never contacts a plugin that it has lost: the plugin must register again. It does so when

* the kubelet's socket appears or is replaced: the kubelet has started, and has deleted every socket in its folder;
* its own socket is gone;
* its ListAndWatch stream has ended, for whatever reason: kubelets up to 1.34 end it also when another instance of this
  plugin ends;
* another instance of this plugin has gone: if that instance registered last, the kubelet now has no plugin, and does
  not report that.
"""

import asyncio
import contextlib
import logging
import time

import grpc
import grpc.aio

from orion.device_plugin.advertised import HEALTHY, Advertised
from orion.device_plugin.answering import OPTIONS
from orion.device_plugin.endpoint import Endpoint
from orion.device_plugin.kubelet import api_pb2, api_pb2_grpc
from orion.device_plugin.kubelet_folder import POLL_SECONDS, FolderState, KubeletFolder
from orion.device_plugin.metrics import Metrics
from orion.errors import Conflict
from orion.injection.agent_link import CHANNEL_OPTIONS
from orion.injection.unix_sockets import identity

VERSION = "v1beta1"

_REGISTER_SECONDS = 15.0
""" Timeout of a registration, during which the kubelet tries for up to 10 s to connect to the plugin. """
_STREAM_SECONDS = 5.0
""" A kubelet that has accepted a registration opens its stream within this time. """
_STABLE_SECONDS = 5.0
""" A registration that lasted this long counts as successful and resets the pause. """
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 5.0

_log = logging.getLogger(__name__)


class Registration:
    """Keeps one resource registered.

    Args:
        endpoint: the endpoint that is registered.
        folder: the kubelet's folder of sockets.
        advertised: the slots that the kubelet will receive; the plugin does not register before the first snapshot.
        metrics: the metrics of the process.
    """

    def __init__(self, endpoint: Endpoint, folder: KubeletFolder, advertised: Advertised, metrics: Metrics) -> None:
        self._endpoint, self._folder, self._advertised, self._metrics = endpoint, folder, advertised, metrics
        self.resource = endpoint.resource
        self._pause = 0.0
        self._complaint = ""
        self.stands = False
        """ Whether the kubelet has accepted the registration, and nothing has ended it since. """

    async def run(self) -> None:
        """Keep the resource registered, for ever.

        Raises:
            Conflict: the kubelet speaks another version of the protocol.
        """
        await self._advertised.first()
        while True:
            await self._until_kubelet()
            kubelet = identity(self._folder.kubelet)
            began = time.monotonic()
            if (state := await self._register()) is not None:
                self._set_stands(True)
                why = await self._lost(state)
                self._set_stands(False)
                _log.info("%s: registers again: %s", self.resource, why)
            if time.monotonic() - began > _STABLE_SECONDS and state is not None:
                self._pause = 0.0
            await self._rest(kubelet)

    def _set_stands(self, stands: bool) -> None:
        self.stands = stands
        self._metrics.registered.labels(self.resource).set(stands)

    async def _until_kubelet(self) -> None:
        if identity(self._folder.kubelet) is None:
            _log.info("%s: waits for the kubelet: %s does not exist", self.resource, self._folder.kubelet)
        while identity(self._folder.kubelet) is None:
            await asyncio.sleep(POLL_SECONDS)

    async def _register(self) -> FolderState | None:
        """Serve, then register. Return the folder's state before the registration; None: it failed."""
        try:
            await self._endpoint.serve()
            state = self._folder.state(self.resource, self._endpoint.path)
            # Record it before and after _ask: if two plugins register at once, the file should name the later one.
            self._folder.record_as_latest(self.resource)
            await self._ask(state)
            self._folder.record_as_latest(self.resource)
        except (grpc.aio.AioRpcError, OSError) as error:
            reason = (error.details() or error.code().name) if isinstance(error, grpc.aio.AioRpcError) else str(error)
            if "API version" in reason and "not supported" in reason:
                raise Conflict(f"the kubelet refuses {VERSION} of the device-plugin interface: {reason}") from None
            self._metrics.registrations.labels(self.resource, "refused").inc()
            if reason != self._complaint:
                self._complaint = reason
                _log.warning("%s: the kubelet does not register it: %s; the plugin retries", self.resource, reason)
            return None
        self._complaint = ""
        self._metrics.registrations.labels(self.resource, "ok").inc()
        devices = self._advertised.devices(self.resource)
        healthy = sum(device.health == HEALTHY for device in devices)
        _log.info("%s: registered with the kubelet: %d slots, %d healthy", self.resource, len(devices), healthy)
        return state

    async def _ask(self, state: FolderState) -> None:
        """Register, and give up as soon as the kubelet can no longer find this plugin.

        A kubelet that starts deletes all sockets. It would then try for 10 s to connect to a socket that is gone.

        Raises:
            AioRpcError: the kubelet rejects the request, or does not run.
            OSError: the folder has changed meanwhile.
        """
        asking = asyncio.create_task(self._request())
        try:
            while not asking.done():
                now = self._folder.state(self.resource, self._endpoint.path)
                if now.kubelet != state.kubelet or not self._endpoint.is_there(now):
                    raise OSError("the kubelet has emptied its folder")
                await asyncio.wait({asking}, timeout=POLL_SECONDS)
            asking.result()
        finally:
            asking.cancel()

    async def _request(self) -> None:
        request = api_pb2.RegisterRequest(
            version=VERSION, endpoint=self._endpoint.path.name, resource_name=self.resource, options=OPTIONS
        )
        async with grpc.aio.insecure_channel(f"unix:{self._folder.kubelet}", options=CHANNEL_OPTIONS) as channel:
            stub = api_pb2_grpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
            await stub.Register(request, timeout=_REGISTER_SECONDS)

    async def _lost(self, state: FolderState) -> str:
        """Wait until the registration is lost; return why."""
        endpoint, service = self._endpoint, self._endpoint.service
        deadline, listened, others = time.monotonic() + _STREAM_SECONDS, False, state.others
        while True:
            changed = service.streams_changed.next
            listened = listened or service.streams > 0
            if listened and service.streams == 0:
                return "the kubelet has ended its stream"
            if not listened and time.monotonic() > deadline:
                return "the kubelet does not watch it"
            now = self._folder.state(self.resource, endpoint.path)
            if now.kubelet != state.kubelet:
                return "the kubelet's socket is another one" if now.kubelet else "the kubelet's socket is gone"
            if not endpoint.is_there(now):
                return "its own socket is gone"
            # If record_as_latest failed, the file still names a plugin that was gone before: ignore that plugin.
            if now.gone not in ("", state.gone) or not others <= now.others:
                return "another plugin is gone"
            others = now.others
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await changed.wait()

    async def _rest(self, kubelet: object) -> None:
        """Wait before the next registration, each time longer. Stop waiting as soon as the kubelet is replaced."""
        until = time.monotonic() + self._pause
        self._pause = min(_LONGEST_PAUSE_SECONDS, max(_FIRST_PAUSE_SECONDS, 2 * self._pause))
        while (left := until - time.monotonic()) > 0 and identity(self._folder.kubelet) == kubelet:
            await asyncio.sleep(min(left, POLL_SECONDS))
        if identity(self._folder.kubelet) != kubelet:
            self._pause = 0.0
