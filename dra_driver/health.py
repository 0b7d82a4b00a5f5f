"""Tells the kubelet which GPUs are healthy: it writes that into the status of the pods that have claimed them.

The kubelet forgets what was not repeated for 30 s, and does not know the health of a GPU then. So a GPU that is gone is
sick, as long as a claim has it. Kubernetes 1.36 has this interface as v1alpha1, with equal messages.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from types import ModuleType
from typing import Any

import grpc.aio

from orion.dra_driver.kubelet.health.v1 import api_pb2 as v1_pb2
from orion.dra_driver.kubelet.health.v1 import api_pb2_grpc as v1_grpc
from orion.dra_driver.kubelet.health.v1alpha1 import api_pb2 as v1alpha1_pb2
from orion.dra_driver.kubelet.health.v1alpha1 import api_pb2_grpc as v1alpha1_grpc
from orion.dra_driver.names import device_name, why_not_offered
from orion.dra_driver.records import Records
from orion.injection.current import CurrentSnapshot
from orion.injection.snapshot import Snapshot

SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")

_REPEAT_SECONDS = 10.0
_MESSAGE_MAX = 1024


class HealthStreams:
    """Serves the health of the GPUs.

    Args:
        pool: the pool of the node's devices.
        current: the agent's last snapshot.
        records: the claims that have slots.
    """

    def __init__(self, pool: str, current: CurrentSnapshot, records: Records) -> None:
        self._pool, self._current, self._records, self._ended = pool, current, records, False

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve both versions."""
        v1_grpc.add_DRAResourceHealthServicer_to_server(_V1(self), server)  # type: ignore[no-untyped-call]
        v1alpha1_grpc.add_DRAResourceHealthServicer_to_server(_V1alpha1(self), server)  # type: ignore[no-untyped-call]

    def end(self) -> None:
        """End all streams."""
        self._ended = True
        self._current.changed.notify()

    async def stream(self, messages: ModuleType) -> AsyncIterator[Any]:
        """Yield the health of all GPUs at once, at each change, and every ten seconds."""
        while not self._ended:
            changed = self._current.changed.next
            if (snapshot := self._current.snapshot) is not None:
                devices = [self._device(messages, *each) for each in self._health(snapshot)]
                yield messages.NodeWatchResourcesResponse(devices=devices)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REPEAT_SECONDS):
                    await changed.wait()

    def _health(self, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
        """Yield each device, and why it is not healthy; empty: it is."""
        offered = {device_name(gpu.uuid): gpu for gpu in snapshot.gpus.values()}
        for device, gpu in offered.items():
            yield device, "" if gpu.healthy else gpu.message or "the GPU is unhealthy"
        given = {share.device for record in self._records.all() if not record.released for share in record.shares}
        for device in sorted(given - offered.keys()):
            yield device, why_not_offered(device, snapshot)

    def _device(self, messages: ModuleType, device: str, why: str) -> Any:
        return messages.DeviceHealth(
            device=messages.DeviceIdentifier(pool_name=self._pool, device_name=device),
            health=messages.UNHEALTHY if why else messages.HEALTHY,
            last_updated_time=int(time.time()),
            message=why[:_MESSAGE_MAX],
        )


class _V1(v1_grpc.DRAResourceHealthServicer):
    def __init__(self, streams: HealthStreams) -> None:
        self._streams = streams

    async def NodeWatchResources(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Send the health of all GPUs."""
        async for message in self._streams.stream(v1_pb2):
            yield message


class _V1alpha1(v1alpha1_grpc.DRAResourceHealthServicer):
    def __init__(self, streams: HealthStreams) -> None:
        self._streams = streams

    async def NodeWatchResources(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Send the health of all GPUs."""
        async for message in self._streams.stream(v1alpha1_pb2):
            yield message
