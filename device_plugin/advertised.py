"""The advertised devices: the slots of the agent's current snapshot, as the kubelet's devices."""

from orion.crds.allocation import Giver
from orion.device_plugin.kubelet import api_pb2
from orion.injection.current import CurrentSnapshot
from orion.injection.slots import Resource
from orion.injection.waiting import Waiting

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


class Advertised(CurrentSnapshot):
    """The current snapshot, which the plugin advertises.

    Args:
        by_node: whether the node chooses between this plugin and the DRA driver.
    """

    def __init__(self, by_node: bool = False) -> None:
        super().__init__()
        self.waiting = Waiting(Giver.DEVICE_PLUGIN, by_node, self)

    def devices(self, resource: Resource) -> list[api_pb2.Device]:
        """Return the slots of a resource as the kubelet's devices."""
        if self.snapshot is None or self.waiting.why:
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
