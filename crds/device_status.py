"""The status of a GPUDevice, which the agent of the GPU's node reports: memory, slots, processes, conditions."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field

from orion.crds.clients import ClientRow, Count, PodReference, Sentence, SlotName, Uuid
from orion.crds.conditions import Conditions
from orion.crds.decimals import Number
from orion.crds.durations import Duration
from orion.crds.model import Model
from orion.crds.parking import Moment, Parked
from orion.crds.policy import Mode, Oversubscribe, PolicyName, Priority
from orion.crds.quantities import Memory
from orion.crds.slot_usage import SlotUsage
from orion.errors import Unreadable

SLOTS_MAX = 128
ROWS_MAX = 64
UNMANAGED_MAX = 16
SHARING_MAX = 16


class DeviceMemory(Model):
    """The memory of the GPU."""

    total: Memory
    """ The total memory of the GPU. Unit: bytes. """

    used: Memory | None = None
    """ The memory in use, as the device reports it. Unit: bytes. """

    reserved: Memory | None = None
    """ The sum of the memory requests of all held slots. Unit: bytes. """

    reserve: Memory | None = None
    """ What the agent keeps free so that hp can grow at once: it parks be slots before less is free. 0: no hp slot is
    held, or no slot may be parked. Unit: bytes. """

    borrowed: Memory | None = None
    """ The sum of what held slots have on the GPU beyond their memory requests. Unit: bytes. """

    returnable: Memory | None = None
    """ The part of `borrowed` in slots that may be parked: they give it back when others need it. Unit: bytes. """


class DeviceTime(Model):
    """The time of the GPU."""

    reserved: Number
    """ The sum of the time that all held slots reserve: what their claims reserve, or what be slots without a claim
    request. 1 is the whole GPU. """


class SlotCount(Model):
    """The number of slots of one priority."""

    total: Count = 0
    """ The number of slots. """

    held: Count = 0
    """ The number of slots that containers hold. """


class SlotCounts(Model):
    """The number of the GPU's slots, by priority."""

    hp: SlotCount = SlotCount()
    """ The slots for high-priority pods. """

    be: SlotCount = SlotCount()
    """ The slots for best-effort pods. """


class SlotRow(Model):
    """A slot that a container holds."""

    name: SlotName
    """ The name of the slot, such as hp-0 or be-3. """

    priority: Priority
    """ The priority of the slot. """

    pod: PodReference | None = None
    """ The pod and container that hold the slot; absent if a program outside the cluster holds it. """

    shared_with: Annotated[list[PodReference] | None, Field(max_length=SHARING_MAX)] = None
    """ Other pods that use the same ResourceClaim, and so the same slot. At most 16. """

    share: Annotated[str | None, Field(max_length=253)] = None
    """ The GPUShare of the pod's namespace that the grant comes from; absent: the grant has the defaults. """

    share_uid: Annotated[str | None, Field(max_length=64)] = None
    """ The uid of that GPUShare. A later GPUShare of the same name has another one. """

    generation: Annotated[int | None, Field(ge=0)] = None
    """ The generation of that GPUShare which the agent has applied. """

    memory_limit: Memory | None = None
    """ The device memory that the processes of the slot may hold together. Unit: bytes. """

    memory_request: Memory | None = None
    """ The device memory that the slot is sure of; absent: none. Unit: bytes. """

    oversubscribe: Oversubscribe | None = None
    """ How the slot gives back device memory that it has beyond its request. park: its processes leave the GPU's
    memory, and wait. unified: its memory moves page by page. Absent: not at all. """

    parked: Parked | None = None
    """ Since when the processes of the slot have left the GPU's memory, and how much they left; absent: they have not.
    The pod runs on, and its programs wait until the agent lets them return. """

    park_refused: Sentence | None = None
    """ Why the slot could not leave the GPU's memory when the agent asked it last; absent: it could, or was not asked.
    """

    park_refused_reason: Annotated[str | None, Field(max_length=64, pattern="^[A-Z][A-Za-z]*$")] = None
    """ The same in one word: ParkRefused, HostMemoryShort or ParkLost. """

    keeps_room_time: Moment | None = None
    """ When the agent last found that others still need the room that the slot should have left, and that asking it
    again has been of no use. Absent: it is not so. The operator evicts the pod if its GPUShare sets
    memory.evictUnparked, and while the agent writes this time again and again. """

    compute_request: Number | None = None
    """ be: the part of the time that the slot gets at least, of the time that hp leaves; absent: no request. """

    compute_limit: Number | None = None
    """ The part of the GPU's time that the slot gets at most; absent: no limit. """

    clients: Count = 0
    """ The number of processes that have joined the slot. """

    usage: SlotUsage | None = None
    """ The GPU time of the slot; absent if no process has used the slot for 10 s. """


class AppliedPolicy(Model):
    """The policy by which the GPU is shared now."""

    name: PolicyName
    """ The name of the policy. """

    share: Annotated[str | None, Field(max_length=507)] = None
    """ The GPUShare that sets the policy, as NAMESPACE/NAME; absent: the agent's default applies. """

    conflicting: Annotated[list[Annotated[str, Field(max_length=507)]] | None, Field(max_length=SLOTS_MAX)] = None
    """ The GPUShares of other hp pods on the GPU that ask for another policy, as NAMESPACE/NAME; absent: none. """

    max_slowdown: Number | None = None
    """ The accepted slowdown of hp's work, as a factor of the time that the work takes alone. """

    request: Number | None = None
    """ The part of the GPU's time that hp is sure of; be is sure of the rest, however busy hp is. """

    window: Duration | None = None
    """ The be work that may be in flight, in expected time. """


class UnmanagedProcess(Model):
    """A process on the GPU that does not use the hook."""

    process_id: Annotated[int, Field(ge=0)]
    """ The process ID in the PID namespace of the node. """

    command: Annotated[str, Field(max_length=64)] = ""
    """ The short command name of the process. """

    pod: PodReference | None = None
    """ The pod of the process; absent if it is unknown. """

    pod_uid: Annotated[str | None, Field(max_length=64)] = None
    """ The uid of that pod, while its name is unknown. """


class GPUDeviceStatus(Model):
    """The observed state of the GPU, as the agent of its node reports it."""

    observed_generation: Annotated[int | None, Field(ge=0)] = None
    """ The metadata.generation of the spec that the agent has applied or is applying. """

    node: Annotated[str | None, Field(max_length=253)] = None
    """ The node that has the GPU. """

    uuid: Uuid | None = None
    """ The GPU's UUID, as the driver writes it. """

    index: Count | None = None
    """ The index of the GPU on the node. """

    model: Annotated[str | None, Field(max_length=128)] = None
    """ The GPU model, as the driver names it. """

    simulated: bool | None = None
    """ Whether this is a simulated GPU, for trials without a GPU. """

    health: Literal["Healthy", "Unhealthy", "Unknown"] | None = None
    """ The health of the GPU. An unhealthy GPU gets no new pods. """

    mode: Mode | None = None
    """ The mode that the GPU is in now. """

    memory: DeviceMemory | None = None
    """ The memory of the GPU. """

    time: DeviceTime | None = None
    """ The time of the GPU. """

    allocation: Literal["device-plugin", "dra"] | None = None
    """ The program that gives the GPU's slots, in a cluster where each node chooses; absent elsewhere. """

    policy: AppliedPolicy | None = None
    """ The policy by which the GPU is shared now. """

    slots: SlotCounts | None = None
    """ The number of slots of the GPU. """

    held_slots: Annotated[
        list[SlotRow] | None,
        Field(
            max_length=SLOTS_MAX,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = None
    """ The slots that containers hold. """

    hp_busy_ratio: Number | None = None
    """ The fraction of the time during which an hp process had work on the GPU. 0 to 1. """

    client_count: Count | None = None
    """ The number of processes that have joined slots of the GPU. """

    clients: Annotated[list[ClientRow] | None, Field(max_length=ROWS_MAX)] = None
    """ The processes that have joined slots of the GPU, the worst affected first. At most 64. """

    unmanaged_process_count: Count | None = None
    """ The number of processes on the GPU that do not use the hook. """

    unmanaged: Annotated[list[UnmanagedProcess] | None, Field(max_length=UNMANAGED_MAX)] = None
    """ Processes on the GPU that do not use the hook. At most 16. """

    agent_version: Annotated[str | None, Field(max_length=64)] = None
    """ The version of the node agent. """

    message: Sentence | None = None
    """ A sentence about the GPU, in addition to the conditions. """

    conditions: Conditions | None = None
    """ Ready: new pods may use the GPU. HookInjected: every process on the GPU uses the hook. ModePending: the mode
    changes when the GPU has no clients. PolicyConflict: the shares of the GPU's hp pods ask for different policies.
    Degraded: a problem affects the GPU, its pods or their processes. Parked, where a slot may be parked: processes have
    left the GPU's memory, and wait. """

    @classmethod
    def read_known(cls, plain: Any) -> Self:
        """Return the model without the fields and rows that this version cannot read: a later agent wrote them."""
        try:
            return cls.read(plain)
        except Unreadable:
            kept: dict[str, Any] = {}
        for name, value in plain.items() if isinstance(plain, dict) else ():
            if isinstance(value, list):
                value = [row for row in value if cls._is_known({name: [row]})]
            if cls._is_known({name: value}):
                kept[name] = value
        return cls.read(kept)

    @classmethod
    def _is_known(cls, plain: Any) -> bool:
        try:
            cls.read(plain)
        except Unreadable:
            return False
        return True
