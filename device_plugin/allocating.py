"""Answers Allocate: a container with slots gets the slots' directories, the hook and the GPUs.

Allocate asks neither the agent nor an API server, and writes nothing. The kubelet calls it while it admits a pod: a
delay holds up every other pod. The kubelet stores the answer and uses it at every start of the container, so paths of
the node in an answer must stay valid for the pod's life. `starting` makes them before each start, and if the node's
disk is full, the start is tried again.

Allocate removes the limit of memory of the slot's earlier container, to which the new one would keep while no agent
answers. When a container starts again, the kubelet does not call Allocate, so the container keeps its own limit.
Rejected: to compare the pods at each start. The plugin would have to save for its next process who had each slot.
"""

import itertools
from collections.abc import Callable, Sequence

from orion.crds.node_configuration import NodeSettings
from orion.device_plugin.kubelet import api_pb2
from orion.device_plugin.rendering import render
from orion.errors import Invalid, Unavailable
from orion.injection.describing import Places, describe
from orion.injection.mount_sources import forget_known_limit
from orion.injection.slots import Resource, Slot, of_resource
from orion.injection.snapshot import Snapshot


class Allocator:
    """Answers Allocate for both resources.

    Args:
        places: where on the node the things are that containers get.
        snapshot: returns the agent's last snapshot.
        waits: returns why the plugin gives no slots now; empty: it gives them.
        settings: returns the settings now in force.
    """

    def __init__(
        self,
        places: Places,
        snapshot: Callable[[], Snapshot | None],
        waits: Callable[[], str],
        settings: Callable[[], NodeSettings],
    ) -> None:
        self._places, self._snapshot, self._waits, self._settings = places, snapshot, waits, settings

    def allocate(self, resource: Resource, device_ids: Sequence[str]) -> api_pb2.ContainerAllocateResponse:
        """Return what one container needs for its slots. Equal requests get equal answers.

        Raises:
            Invalid: an ID is not a slot of this node, two slots are of one GPU, or there are several GPUs and one is in
                mode mps.
            Unavailable: the plugin has no snapshot yet, the DRA driver gives slots, or the driver's files are missing.
        """
        snapshot, settings = self._snapshot(), self._settings()
        if snapshot is None:
            raise Unavailable("the node's agent has not yet reported its GPUs")
        if why := self._waits():
            raise Unavailable(f"{why}: delete the pod, so that it starts on another node")
        slots = _slots(resource, device_ids, snapshot)
        given = describe(self._places, slots, snapshot, settings)
        for slot in slots:
            forget_known_limit(self._places.root, slot)
        return render(given, resource, settings.device_list_strategy)


def _slots(resource: Resource, device_ids: Sequence[str], snapshot: Snapshot) -> list[Slot]:
    if not device_ids:
        raise Invalid("the kubelet requests a container without devices")
    slots = of_resource(resource, device_ids)
    for slot in slots:
        if not snapshot.knows(slot):
            why = snapshot.not_advertised.get(slot.gpu, "")
            raise Invalid(f"there is no slot {slot} on this node" + (f" ({why})" if why else ""))
    for first, second in itertools.pairwise(slots):
        if first.gpu == second.gpu:
            raise Invalid(
                f"{first} and {second} are two slots of one GPU, and a container can use one slot of each GPU: fewer "
                "GPUs of the node had free slots than the container asks for"
            )
    return slots
