"""A container gets as many GPUs as it asks for, also if the kubelet's topology manager chooses the NUMA nodes.

The stand-in for the kubelet has no topology manager. What the kubelet's does is here as a function.
"""

import itertools
from collections.abc import Sequence

import pytest

from orion.device_plugin.advertised import Advertised
from orion.device_plugin.kubelet import api_pb2
from orion.device_plugin.preferring import prefer
from orion.injection.slots import Resource, parse
from orion.injection.snapshot import Snapshot, from_message
from tests.device_plugin.scripted_agent import devices


def snapshot(nodes: Sequence[int | None], hp: int = 1, be: int = 8) -> Snapshot:
    """Return a snapshot of GPUs on these NUMA nodes."""
    message = devices(len(nodes), hp, be)
    for device, node in zip(message.devices, nodes, strict=True):
        if node is not None:
            device.numa_node = node
    return from_message(message)


def advertised(found: Snapshot, resource: Resource) -> list[api_pb2.Device]:
    current = Advertised()
    current.take(found)
    return current.devices(resource)


def nodes_of(device: api_pb2.Device) -> set[int]:
    return {node.ID for node in device.topology.nodes}


def aligned(offered: Sequence[api_pb2.Device], size: int) -> list[api_pb2.Device]:
    """Return the devices among which the kubelet lets the plugin choose: those of the fewest nodes with enough of them.

    As `generateDeviceTopologyHints` and `filterByAffinity` of its device manager do.
    """
    known = sorted(set().union(*map(nodes_of, offered)))
    for count in range(1, len(known) + 1):
        for mask in itertools.combinations(known, count):
            found = [device for device in offered if nodes_of(device) & set(mask)]
            if len(found) >= size:
                return found
    return list(offered)


@pytest.mark.parametrize("nodes", [(0, 0, 0, 0, 1, 1, 1, 1), (0, 1, 2, 3, 4, 5, 6, 7), (0,) * 8, (None,) * 8])
@pytest.mark.parametrize("resource", Resource)
def test_a_container_gets_as_many_gpus_as_it_asks_for(nodes: tuple[int | None, ...], resource: Resource) -> None:
    found = snapshot(nodes)
    offered = advertised(found, resource)
    for size in range(1, 9):
        free = [parse(device.ID) for device in aligned(offered, size)]
        chosen = prefer(free, [], size, found.gpus)
        assert len({slot.gpu for slot in chosen}) == size


def test_slots_have_the_numa_node_of_their_gpu_where_that_cannot_mislead() -> None:
    assert [nodes_of(each) for each in advertised(snapshot((0, 1)), Resource.HP)] == [{0}, {1}]
    assert [nodes_of(each) for each in advertised(snapshot((1, 1)), Resource.BE)] == [{1}] * 16
    assert [nodes_of(each) for each in advertised(snapshot((0, 1), be=1), Resource.BE)] == [{0}, {1}]
    assert not any(map(nodes_of, advertised(snapshot((0, 1)), Resource.BE)))


def test_a_rolling_update_of_hp_changes_no_numa_node() -> None:
    message = devices(2, hp=1)
    for node, device in enumerate(message.devices):
        device.numa_node = node
    message.devices[1].slots.append("hp-1")
    assert [nodes_of(each) for each in advertised(from_message(message), Resource.HP)] == [{0}, {1}, {1}]
