"""The device-plugin service of one resource: each method checks, lets a part act, and counts.

An error is answered as a sentence, since the kubelet puts it into the pod's events; what nobody thought of is answered
too, and logged: the plugin goes on for the other pods.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import grpc
import grpc.aio

from orion.device_plugin.advertised import Advertised, Notifier
from orion.device_plugin.allocating import Allocator
from orion.device_plugin.errors import BadRequest, RequestRefused
from orion.device_plugin.kubelet import api_pb2, api_pb2_grpc
from orion.device_plugin.metrics import Metrics
from orion.device_plugin.preferring import prefer
from orion.device_plugin.slots import Resource, Slot, parse
from orion.device_plugin.starting import Starter

OPTIONS = api_pb2.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)
""" Said twice, when registering and when asked: kubelets go by the answer. """

Context = grpc.aio.ServicerContext[Any, Any]

_log = logging.getLogger(__name__)


class Failed(Exception):
    """A request is answered with a sentence."""

    def __init__(self, code: grpc.StatusCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class DevicePluginService(api_pb2_grpc.DevicePluginServicer):
    """Answers the kubelet.

    Args:
        resource: the one that this service is for.
        advertised: what there is.
        allocator: makes answers of Allocate.
        starter: sees to starts.
        metrics: of the process.
    """

    def __init__(
        self, resource: Resource, advertised: Advertised, allocator: Allocator, starter: Starter, metrics: Metrics
    ) -> None:
        self._resource, self._advertised, self._allocator, self._starter = resource, advertised, allocator, starter
        self._metrics = metrics
        self._ended = False
        self.streams = 0
        """ ListAndWatch streams that are open now. """
        self.streams_changed = Notifier()

    def end_streams(self) -> None:
        """Let every open stream end."""
        self._ended = True
        self._advertised.changed.notify()

    async def GetDevicePluginOptions(self, request: Any, context: Context) -> api_pb2.DevicePluginOptions:  # noqa: N802
        """Return what the kubelet should call."""
        return OPTIONS

    async def ListAndWatch(self, request: Any, context: Context) -> AsyncIterator[Any]:  # noqa: N802
        """Return all slots with their health, and all of them again at every change."""
        self.streams += 1
        self.streams_changed.notify()
        try:
            said = None
            while not self._ended:
                changed = self._advertised.changed.next
                devices = self._advertised.devices(self._resource)
                if devices != said:
                    yield api_pb2.ListAndWatchResponse(devices=devices)
                    said = devices
                await changed.wait()
        finally:
            self.streams -= 1
            self.streams_changed.notify()

    async def GetPreferredAllocation(self, request: Any, context: Context) -> Any:  # noqa: N802
        """Return the slots that containers should get of those that are free."""
        try:
            with self._answering("GetPreferredAllocation"):
                gpus = self._advertised.snapshot.gpus if self._advertised.snapshot else {}
                answer = api_pb2.PreferredAllocationResponse()
                for asked in request.container_requests:
                    available, must = _slots(asked.available_deviceIDs), _slots(asked.must_include_deviceIDs)
                    chosen = prefer(available, must, asked.allocation_size, gpus)
                    answer.container_responses.add(deviceIDs=[str(slot) for slot in chosen])
                return answer
        except Failed as failed:
            await context.abort(failed.code, str(failed))

    async def Allocate(self, request: Any, context: Context) -> Any:  # noqa: N802
        """Return what containers need for their slots."""
        try:
            with self._answering("Allocate"):
                return api_pb2.AllocateResponse(
                    container_responses=[
                        self._allocator.allocate(self._resource, list(asked.devices_ids))
                        for asked in request.container_requests
                    ]
                )
        except Failed as failed:
            await context.abort(failed.code, str(failed))

    async def PreStartContainer(self, request: Any, context: Context) -> Any:  # noqa: N802
        """Make all be ready for a container's start."""
        try:
            with self._answering("PreStartContainer"):
                await self._starter.start(self._resource, list(request.devices_ids))
                return api_pb2.PreStartContainerResponse()
        except Failed as failed:
            await context.abort(failed.code, str(failed))

    @contextlib.contextmanager
    def _answering(self, method: str) -> Iterator[None]:
        """Count and time a request; turn whatever goes wrong into a sentence."""
        began, result = time.perf_counter(), "ok"
        try:
            yield
        except RequestRefused as error:
            result = "refused"
            _log.warning("%s: %s refused: %s", self._resource, method, error)
            raise Failed(error.code, f"orion: {error}") from None
        except asyncio.CancelledError:
            result = "cancelled"
            raise
        except Exception as error:
            result = "failed"
            _log.exception("%s: %s failed", self._resource, method)
            raise Failed(grpc.StatusCode.INTERNAL, f"orion: an error of the device plugin: {error!r}") from None
        finally:
            self._metrics.requests.labels(self._resource, method, result).observe(time.perf_counter() - began)


def _slots(device_ids: Iterable[str]) -> list[Slot]:
    """Return the slots of ids; others are left out: it is a hint that is asked for, and an error ends the pod."""
    slots = []
    for device_id in device_ids:
        with contextlib.suppress(BadRequest):
            slots.append(parse(device_id))
    return slots
