"""What is advertised now: the agent's word of this moment, and a notifier for those who pass it on to the kubelet."""

import asyncio
import time

from orion.device_plugin.kubelet import api_pb2
from orion.device_plugin.slots import Resource
from orion.device_plugin.snapshot import Snapshot

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


class Notifier:
    """Wakes all who wait for the next ring. Take `next` first, then look, then wait: no ring is missed."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    @property
    def next(self) -> asyncio.Event:
        """Set at the next ring."""
        return self._rung

    def notify(self) -> None:
        """Wake them."""
        self._rung.set()
        self._rung = asyncio.Event()


class Advertised:
    """The word as it is, None before the first."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.heard: float = 0.0
        """ When the agent said so itself, by time.monotonic(); 0: never in this process. """
        self.changed = Notifier()

    def take(self, snapshot: Snapshot, *, from_agent: bool = True) -> bool:
        """Advertise what a word says; return whether that is anything new."""
        if from_agent:
            self.heard = time.monotonic()
        if snapshot == self.snapshot:
            return False
        self.snapshot = snapshot
        self.changed.notify()
        return True

    async def first(self) -> Snapshot:
        """Return the word, waiting for the first."""
        while self.snapshot is None:
            await self.changed.next.wait()
        return self.snapshot

    def devices(self, resource: Resource) -> list[api_pb2.Device]:
        """Return the slots of a resource as the kubelet is told of them."""
        if self.snapshot is None:
            return []
        return [
            api_pb2.Device(
                ID=str(slot),
                health=HEALTHY if gpu.usable(slot) else UNHEALTHY,
                topology=_topology(gpu.numa_node),
            )
            for gpu, slot in self.snapshot.slots(resource)
        ]


def _topology(numa_node: int | None) -> api_pb2.TopologyInfo | None:
    return None if numa_node is None else api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=numa_node)])
