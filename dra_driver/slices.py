"""The node's GPUs as the devices of a ResourceSlice: what the scheduler may give to claims.

A GPU is one device that many claims share (`allowMultipleAllocations`). They share its time in thousandths, its memory
and its slots. All are whole numbers, since Kubernetes 1.36 counts no parts. A claim that asks for nothing gets
one be slot. A claim takes a slot by its request, never by default, if it is hp's.

Slices of like nodes differ in UUIDs and addresses alone: autoscalers copy them to learn what a new node would offer.
What changes often, such as used memory, is not in a slice: each change wakes all pods that wait for a GPU.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from orion.crds.claims import DRIVER, MEMORY, SLOTS, TIME
from orion.crds.places import PARTS, SPREAD, WHOLE
from orion.crds.quantities import Quantity
from orion.dra_driver.names import device_name
from orion.injection.snapshot import AdvertisedGPU, Snapshot

API_VERSION = "resource.k8s.io/v1"
CORDONED, UNHEALTHY = "orion.gpu/cordoned", "orion.gpu/unhealthy"
OFFERED_BY_ANOTHER = "orion.gpu/offered-by-another"
_WHOLE_TIME = 1000
_MIB = 1 << 20
_STRING_MAX = 64
""" The longest string in an attribute, and about the longest value of a taint. """


def devices(
    snapshot: Snapshot, slot_memory_bytes: int, others: Mapping[str, str] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Return the devices of a node, in the order of its GPUs.

    Args:
        snapshot: the agent's snapshot.
        slot_memory_bytes: the memory that a slot's processes take besides what they allocate: their contexts.
        others: the other drivers that offer a GPU, by its UUID in lower case.
    """
    gpus = sorted(snapshot.gpus.values(), key=lambda gpu: (gpu.index, gpu.uuid))
    groups = _linked_groups(gpus)
    return [_device(gpu, groups.get(gpu.uuid), slot_memory_bytes, others.get(gpu.uuid.lower(), "")) for gpu in gpus]


def resource_slice(node: str, node_uid: str, generation: int, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the node's only slice. The node owns it, so that both go together."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceSlice",
        "metadata": {"name": slice_name(node), "ownerReferences": [owner]},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": list(found),
        },
    }


def slice_name(node: str) -> str:
    """Return the name of a node's slice: two drivers of a rolling update write the same one."""
    return f"{node}-{DRIVER}"


def same(wanted: Any, stored: Any) -> bool:
    """Return whether the API server has stored what was wanted. It adds fields, and writes amounts in another way."""
    if isinstance(wanted, Mapping):
        return isinstance(stored, Mapping) and all(same(each, stored.get(name)) for name, each in wanted.items())
    if isinstance(wanted, list):
        return isinstance(stored, list) and len(wanted) == len(stored) and all(map(same, wanted, stored))
    if isinstance(wanted, str) and isinstance(stored, str) and wanted != stored:
        return _amount(wanted) is not None and _amount(wanted) == _amount(stored)
    return bool(wanted == stored)


def _amount(text: str) -> object:
    try:
        return Quantity(text).value
    except ValueError:
        return None


def _device(gpu: AdvertisedGPU, group: int | None, slot_memory_bytes: int, other: str) -> dict[str, Any]:
    device = {
        "name": device_name(gpu.uuid),
        "allowMultipleAllocations": True,
        "attributes": dict(_attributes(gpu, group)),
        "capacity": dict(_capacities(gpu, slot_memory_bytes)),
    }
    taints = list(_taints(gpu))
    if other:
        taints.append({"key": OFFERED_BY_ANOTHER, "value": other[:63], "effect": "NoSchedule"})
    return device | ({"taints": taints} if taints else {})


def _attributes(gpu: AdvertisedGPU, group: int | None) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "uuid", {"string": gpu.uuid}
    if gpu.model:
        yield "model", {"string": gpu.model[:_STRING_MAX]}
    for name, version in (("computeCapability", gpu.compute_capability), ("driverVersion", gpu.driver_version)):
        if (found := _version(version)) is not None:
            yield name, {"version": found}
    yield "mode", {"string": gpu.mode}
    yield "simulated", {"bool": gpu.simulated}
    if group is not None:
        yield "nvlink", {"int": group}
    if gpu.numa_node is not None:
        yield "resource.kubernetes.io/numaNode", {"int": gpu.numa_node}
    for name, place in (("pciBusID", gpu.pci_bus_id), ("pcieRoot", gpu.pcie_root)):
        if place:
            yield f"resource.kubernetes.io/{name}", {"string": place}


def _version(text: str) -> str | None:
    """Return a version as semantic versioning has it: three numbers without leading zeros. None: it is not one."""
    numbers = text.split(".")
    if not text or len(numbers) > 3 or not all(number.isdecimal() for number in numbers):
        return None
    return ".".join(str(int(number)) for number in [*numbers, "0", "0"][:3])


def _capacities(gpu: AdvertisedGPU, slot_memory_bytes: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what claims can share. A capacity of nothing is left out: the API server refuses a step beyond it."""
    yield TIME, _range(str(_WHOLE_TIME), "1")
    memory = (gpu.memory_bytes - len(gpu.slots) * slot_memory_bytes) // _MIB
    if memory > 0:
        yield MEMORY, _range(f"{memory}Mi", "1Mi")
    for role, name in SLOTS.items():
        count = sum(slot.role == role and slot not in gpu.closed for slot in gpu.slots)
        if count:
            default = "1" if role == "be" else "0"
            yield name, {"value": str(count), "requestPolicy": {"default": default, "validValues": ["0", "1"]}}
    places = ["0", *map(str, sorted(PARTS))]
    yield SPREAD, {"value": str(WHOLE), "requestPolicy": {"default": "0", "validValues": places}}


def _range(value: str, step: str) -> dict[str, Any]:
    return {"value": value, "requestPolicy": {"default": "0", "validRange": {"min": "0", "max": value, "step": step}}}


def _taints(gpu: AdvertisedGPU) -> Iterator[dict[str, str]]:
    """Yield why no further pod may get the GPU. What runs stays: a person decides whether it has to leave.

    A value must not be empty: the API server leaves it out, and would seem to have dropped it.
    """
    given = [key for key, applies in ((UNHEALTHY, not gpu.healthy), (CORDONED, gpu.cordoned)) if applies]
    for key in given:
        reason = {"value": gpu.reason[:63]} if gpu.reason and key == given[0] else {}
        yield {"key": key, **reason, "effect": "NoSchedule"}


def _linked_groups(gpus: Sequence[AdvertisedGPU]) -> dict[str, int]:
    """Number the groups of GPUs that NVLink joins, in the order of their first GPUs; others have no group."""
    groups: list[list[str]] = []
    """ The UUIDs of each group. """
    for gpu in gpus:
        near = [each.uuid for each in gpus if each is gpu or each.uuid in gpu.linked or gpu.uuid in each.linked]
        joined = [group for group in groups if not set(group).isdisjoint(near)]
        groups = [group for group in groups if group not in joined] + [sum(joined, near)]
    order = [gpu.uuid for gpu in gpus]
    several = [group for group in groups if len(set(group)) > 1]
    several.sort(key=lambda group: min(map(order.index, group)))
    return {uuid: number for number, group in enumerate(several) for uuid in group}
