"""The advertised devices: the slots of the agent's current snapshot, as the kubelet's devices.

A device may have a NUMA node, by which a kubelet with a topology manager chooses for a container. But the kubelet takes
each device for a GPU: of two NUMA nodes with four GPUs of eight slots each, one node has enough devices for a container
that wants eight GPUs, and its start would be refused. So slots have no NUMA node where that could happen.
Rejected: a NUMA node for one free slot of each GPU. The kubelet would fail a pod that comes before the next list.
"""

from collections import Counter
from collections.abc import Sequence

from orion.crds.allocation import Giver
from orion.device_plugin.kubelet import api_pb2
from orion.injection.current import CurrentSnapshot
from orion.injection.slots import Resource, Slot
from orion.injection.snapshot import AdvertisedGPU
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
        slots = list(self.snapshot.slots(resource))
        has_nodes = _devices_count_as_gpus(slots)
        return [
            api_pb2.Device(
                ID=str(slot),
                health=HEALTHY if gpu.usable(slot) else UNHEALTHY,
                topology=_topology(gpu.numa_node) if has_nodes else None,
            )
            for gpu, slot in slots
        ]


def _devices_count_as_gpus(slots: Sequence[tuple[AdvertisedGPU, Slot]]) -> bool:
    """Return whether a NUMA node with enough slots for a container also has enough GPUs.

    A GPU with one hp slot has two during a rolling update, whose pod asks for one: so one GPU may have several.
    """
    of_gpu = Counter(slot.gpu for _, slot in slots)
    return sum(count > 1 for count in of_gpu.values()) <= 1 or len({gpu.numa_node for gpu, _ in slots}) == 1


def _topology(numa_node: int | None) -> api_pb2.TopologyInfo | None:
    return None if numa_node is None else api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=numa_node)])
