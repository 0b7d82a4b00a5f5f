"""The advertised devices: the agent's current snapshot, and a notifier for the streams that send it to the kubelet."""

import asyncio
import time

from orion.device_plugin.kubelet import api_pb2
from orion.device_plugin.slots import Resource
from orion.device_plugin.snapshot import Snapshot

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


class Notifier:
    """Wakes all tasks that wait for the next change.

    To miss no change, a task takes `next`, then reads the state, and then waits for the event.
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def next(self) -> asyncio.Event:
        """The event that the next change sets."""
        return self._event

    def notify(self) -> None:
        """Wake the tasks that wait."""
        self._event.set()
        self._event = asyncio.Event()


class Advertised:
    """The current snapshot; None before the first."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.received_at: float = 0.0
        """ The monotonic time at which the agent last sent a snapshot to this process; 0: it has not sent one. """
        self.changed = Notifier()

    def take(self, snapshot: Snapshot, *, from_agent: bool = True) -> bool:
        """Advertise a snapshot; return whether it differs from the one before."""
        if from_agent:
            self.received_at = time.monotonic()
        if snapshot == self.snapshot:
            return False
        self.snapshot = snapshot
        self.changed.notify()
        return True

    async def first(self) -> Snapshot:
        """Return the snapshot; wait for the first one."""
        while self.snapshot is None:
            await self.changed.next.wait()
        return self.snapshot

    def devices(self, resource: Resource) -> list[api_pb2.Device]:
        """Return the slots of a resource as the kubelet's devices."""
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
