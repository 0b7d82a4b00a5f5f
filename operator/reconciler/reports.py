"""What a node's agent reports about a GPU, as the reconciler keeps it: the fields that decisions read.

The models of `crds` check the status when it arrives. They are not kept: each of them has a dict, and a set of the
fields that were given. The models of a GPU with four clients take 19 KB, and these records take 3 KB. Equal strings are
interned.
"""

import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orion.crds.clients import ClientRow, PodReference
from orion.crds.conditions import Condition
from orion.crds.decimals import Number
from orion.crds.device_status import (
    AppliedPolicy,
    DeviceMemory,
    GPUDeviceStatus,
    SlotCount,
    SlotCounts,
    SlotRow,
    UnmanagedProcess,
)
from orion.crds.durations import Duration
from orion.crds.model import Model
from orion.crds.parking import Parked
from orion.crds.policy import Mode, PolicyName, Priority
from orion.crds.quantities import Memory
from orion.crds.slot_usage import ShareSlotRow, SlotUsage


@dataclass(frozen=True, slots=True)
class ReportedPod:
    """A container of a pod."""

    namespace: str
    name: str
    uid: str | None
    container: str | None


@dataclass(frozen=True, slots=True)
class ReportedUsage:
    """The GPU time of a slot."""

    due: Number
    charged: Number
    measured: Number
    waited: Number
    debt: Duration | None


@dataclass(frozen=True, slots=True)
class ReportedParking:
    """Since when a slot is parked, and how many bytes it left."""

    since: str
    memory: int


@dataclass(frozen=True, slots=True)
class ReportedSlot:
    """A slot that a container holds."""

    name: str
    priority: Priority
    pod: ReportedPod | None
    shared_with: tuple[ReportedPod, ...] | None
    """ Other pods that use the slot: at most `SHARING_MAX`, and there may be more. """
    share: str | None
    share_uid: str | None
    """ None: the agent is of an earlier version, or there is no share. """
    generation: int | None
    clients: int
    compute_request: Number | None
    compute_limit: Number | None
    usage: ReportedUsage | None
    parked: ReportedParking | None
    park_refused: str | None
    park_refused_reason: str | None
    keeps_room_time: str | None


@dataclass(frozen=True, slots=True)
class ReportedClient:
    """A process that has joined a slot: all fields of a `ClientRow`, because statuses of shares repeat them."""

    pod: ReportedPod | None
    node: str | None
    gpu: str | None
    slot: str
    priority: Priority
    process_id: int
    command: str
    state: str
    memory: int | None
    """ Bytes. """
    busy_ratio: Number | None
    gated_ratio: Number | None
    slowdown: Number | None
    message: str | None


@dataclass(frozen=True, slots=True)
class ReportedProcess:
    """A process on the GPU that does not use the hook."""

    process_id: int
    command: str
    pod: ReportedPod | None
    pod_uid: str | None


@dataclass(frozen=True, slots=True)
class ReportedMemory:
    """The memory of the GPU, in bytes."""

    total: int
    used: int | None
    reserved: int | None
    returnable: int | None


@dataclass(frozen=True, slots=True)
class ReportedCount:
    """The number of slots of one priority."""

    total: int
    held: int


@dataclass(frozen=True, slots=True)
class ReportedCounts:
    """The number of slots, by priority."""

    hp: ReportedCount
    be: ReportedCount


@dataclass(frozen=True, slots=True)
class ReportedPolicy:
    """The policy by which the GPU is shared now."""

    name: PolicyName
    share: str | None
    conflicting: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class ReportedCondition:
    """A condition: all of its fields."""

    type: str
    status: str
    observed_generation: int | None
    last_transition_time: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ReportedStatus:
    """The status of a GPU."""

    observed_generation: int | None
    node: str | None
    uuid: str | None
    model: str | None
    simulated: bool | None
    health: str | None
    mode: Mode | None
    memory: ReportedMemory | None
    policy: ReportedPolicy | None
    slots: ReportedCounts | None
    held_slots: tuple[ReportedSlot, ...] | None
    clients: tuple[ReportedClient, ...] | None
    unmanaged: tuple[ReportedProcess, ...] | None
    conditions: tuple[ReportedCondition, ...] | None


_RECORDS: Mapping[type[Model], type[Any]] = {
    PodReference: ReportedPod,
    SlotRow: ReportedSlot,
    SlotUsage: ReportedUsage,
    Parked: ReportedParking,
    ClientRow: ReportedClient,
    UnmanagedProcess: ReportedProcess,
    DeviceMemory: ReportedMemory,
    SlotCount: ReportedCount,
    SlotCounts: ReportedCounts,
    AppliedPolicy: ReportedPolicy,
    Condition: ReportedCondition,
    GPUDeviceStatus: ReportedStatus,
}


def reported(status: GPUDeviceStatus) -> ReportedStatus:
    """Return what the reconciler keeps of a GPU's status."""
    kept: ReportedStatus = _kept(status)
    return kept


def _kept(value: Any) -> Any:
    record = _RECORDS.get(type(value))
    if record is not None:
        return record(*(_kept(getattr(value, name)) for name in record.__slots__))
    if isinstance(value, list):
        return tuple(map(_kept, value))
    if isinstance(value, Memory):
        return value.bytes
    if isinstance(value, Number):
        return _shared(value)
    return sys.intern(value) if type(value) is str else value


@functools.lru_cache(maxsize=4096)
def _shared(number: Number) -> Number:
    """Return the same object for equal numbers: figures have two decimals, so few numbers differ."""
    return number


def slot_row(slot: ReportedSlot, node: str | None, gpu: str | None) -> ShareSlotRow:
    """Return a slot that has a usage or is parked for the status of a share, with its node and GPU."""
    plain = {"slot": slot.name, "pod": slot.pod, "node": node, "gpu": gpu, "usage": slot.usage}
    claims = {"compute_request": slot.compute_request, "compute_limit": slot.compute_limit}
    parked = slot.parked and Parked(since=slot.parked.since, memory=Memory.of_bytes(slot.parked.memory))
    return ShareSlotRow.model_validate(plain | claims | {"parked": parked}, from_attributes=True)


def client_row(client: ReportedClient, node: str | None, gpu: str | None) -> ClientRow:
    """Return a client for the status of a share, with its node and GPU."""
    row = ClientRow.model_validate(client, from_attributes=True)
    memory = None if client.memory is None else Memory.of_bytes(client.memory)
    return row.model_copy(update={"node": client.node or node, "gpu": client.gpu or gpu, "memory": memory})
