"""The gRPC service of one resource: each method checks the request, delegates it, and records metrics.

The service answers an error with a sentence, since the kubelet puts that sentence into the pod's Events. It also
answers and logs unexpected exceptions, so one pod's failure does not stop the plugin for the others. Allocate never
answers an error: the container's start is refused instead (`refused`).
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from orion.device_plugin import refused
from orion.device_plugin.advertised import Advertised
from orion.device_plugin.allocating import Allocator
from orion.device_plugin.kubelet import api_pb2, api_pb2_grpc
from orion.device_plugin.metrics import Metrics
from orion.device_plugin.preferring import prefer
from orion.device_plugin.starting import Starter
from orion.errors import Invalid, OrionError
from orion.injection.current import Notifier
from orion.injection.slots import Resource, Slot, parse

OPTIONS = api_pb2.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)
""" Sent with the registration and as the answer to GetDevicePluginOptions; kubelets use only the answer. """

Context = grpc.aio.ServicerContext[Any, Any]

_log = logging.getLogger(__name__)


@dataclass
class _Request:
    """A request of the kubelet, and how it ends: ok, refused, failed or cancelled."""

    resource: Resource
    method: str
    result: str = "ok"

    def failed(self, error: Exception) -> str:
        """Log why the request fails, and return the sentence for the pod's Events."""
        if isinstance(error, OrionError):
            self.result = "refused"
            _log.warning("%s: %s refused: %s", self.resource, self.method, error)
            return str(error)
        self.result = "failed"
        _log.error("%s: %s failed", self.resource, self.method, exc_info=error)
        return f"an error of the device plugin: {error!r}"


class DevicePluginService(api_pb2_grpc.DevicePluginServicer):
    """Answers the kubelet.

    Args:
        resource: the resource that this service serves.
        advertised: the current snapshot.
        allocator: builds the answers of Allocate.
        starter: prepares starts of containers.
        metrics: the metrics of the process.
    """

    def __init__(
        self, resource: Resource, advertised: Advertised, allocator: Allocator, starter: Starter, metrics: Metrics
    ) -> None:
        self._resource, self._advertised, self._allocator, self._starter = resource, advertised, allocator, starter
        self._metrics = metrics
        self._ended = False
        self.streams = 0
        """ Number of open ListAndWatch streams. """
        self.streams_changed = Notifier()

    def end_streams(self) -> None:
        """End every open stream."""
        self._ended = True
        self._advertised.changed.notify()

    async def GetDevicePluginOptions(self, request: Any, context: Context) -> api_pb2.DevicePluginOptions:  # noqa: N802
        """Return which optional methods the kubelet should call."""
        return OPTIONS

    async def ListAndWatch(self, request: Any, context: Context) -> AsyncIterator[Any]:  # noqa: N802
        """Send all slots with their health, and send all of them again at every change."""
        self.streams += 1
        self.streams_changed.notify()
        try:
            sent = None
            while not self._ended:
                changed = self._advertised.changed.next
                devices = self._advertised.devices(self._resource)
                if devices != sent:
                    yield api_pb2.ListAndWatchResponse(devices=devices)
                    sent = devices
                await changed.wait()
        finally:
            self.streams -= 1
            self.streams_changed.notify()

    async def GetPreferredAllocation(self, request: Any, context: Context) -> Any:  # noqa: N802
        """Return the free slots that the plugin prefers."""
        async with self._answering("GetPreferredAllocation", context):
            gpus = self._advertised.snapshot.gpus if self._advertised.snapshot else {}
            answer = api_pb2.PreferredAllocationResponse()
            for asked in request.container_requests:
                available, must = _slots(asked.available_deviceIDs), _slots(asked.must_include_deviceIDs)
                chosen = prefer(available, must, asked.allocation_size, gpus)
                answer.container_responses.add(deviceIDs=[str(slot) for slot in chosen])
            return answer

    async def Allocate(self, request: Any, context: Context) -> Any:  # noqa: N802
        """Return what containers need for their slots."""
        async with self._answering("Allocate", context) as current:
            return api_pb2.AllocateResponse(
                container_responses=[
                    self._allocate(current, list(asked.devices_ids)) for asked in request.container_requests
                ]
            )

    def _allocate(self, current: _Request, device_ids: list[str]) -> api_pb2.ContainerAllocateResponse:
        """Return what a container needs, or an answer with which it cannot start: an error would fail its pod."""
        try:
            return self._allocator.allocate(self._resource, device_ids)
        except Exception as error:
            return refused.refuse(current.failed(error))

    async def PreStartContainer(self, request: Any, context: Context) -> Any:  # noqa: N802
        """Prepare a container's start."""
        async with self._answering("PreStartContainer", context):
            await self._starter.start(self._resource, list(request.devices_ids))
            return api_pb2.PreStartContainerResponse()

    @contextlib.asynccontextmanager
    async def _answering(self, method: str, context: Context) -> AsyncIterator[_Request]:
        """Count and time a request; turn every exception into a sentence."""
        began, current = time.perf_counter(), _Request(self._resource, method)
        try:
            yield current
        except asyncio.CancelledError:
            current.result = "cancelled"
            raise
        except Exception as error:
            code = error.grpc_code if isinstance(error, OrionError) else "INTERNAL"
            await context.abort(grpc.StatusCode[code], f"orion: {current.failed(error)}")
        finally:
            taken = time.perf_counter() - began
            self._metrics.requests.labels(self._resource, method, current.result).observe(taken)


def _slots(device_ids: Iterable[str]) -> list[Slot]:
    """Return the slots of IDs. Skip invalid IDs: the answer is only a preference, and an error would fail the pod."""
    slots = []
    for device_id in device_ids:
        with contextlib.suppress(Invalid):
            slots.append(parse(device_id))
    return slots
