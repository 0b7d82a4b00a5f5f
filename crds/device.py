"""GPUDevice: one physical GPU, made by its node's agent; people and the operator say in `spec` what it shall be.

Named by the GPU's UUID in lower case, so that an agent finds its objects without a look-up, two agents can never mean
the same one, and a GPU that moves to another node keeps its settings. Status is the agent's alone.
"""

import re
from typing import Annotated, Literal

from pydantic import Field, StrictBool

from orion.crds.clients import ClientRow, Count, PodReference, Sentence, SlotName, Uuid
from orion.crds.conditions import Conditions
from orion.crds.decimals import Number
from orion.crds.durations import Duration
from orion.crds.kinds import AGE, Column, Kind, condition_column
from orion.crds.metadata import Metadata
from orion.crds.model import Model
from orion.crds.policy import Mode, PolicyName, Priority
from orion.crds.quantities import Memory
from orion.crds.rules import Rule

SLOTS_MAX = 128
ROWS_MAX = 64
UNMANAGED_MAX = 16


def device_name(uuid: str) -> str:
    """Return the name of a GPU's object."""
    return uuid.lower()


class GPUDeviceSpec(Model):
    """What people and the operator want of this GPU; its node's agent carries it out."""

    cordon: StrictBool = False
    """ Whether no further pods shall come to this GPU; those that are there stay. Default: false. """

    mode: Mode = Mode.TIMESLICE
    """ timeslice: processes use the GPU in time slices, fully isolated. mps: processes run together, so that be may
    overlap hp, and share the fate of the MPS server. A change takes effect when the GPU has no clients; until then the
    condition ModePending says so. Default: timeslice. """


class DeviceMemory(Model):
    """The memory of the GPU."""

    total: Memory
    """ All of it. Unit: bytes. """

    used: Memory | None = None
    """ In use, as the device reports it. Unit: bytes. """

    reserved: Memory | None = None
    """ Asked for by the grants of the slots that are held. Unit: bytes. """


class SlotCount(Model):
    """Slots of one kind."""

    total: Count = 0
    """ How many there are. """

    held: Count = 0
    """ How many of them a container holds. """


class SlotCounts(Model):
    """The GPU's slots, counted."""

    hp: SlotCount = SlotCount()
    """ For high-priority pods. """

    be: SlotCount = SlotCount()
    """ For best-effort pods. """


class SlotRow(Model):
    """A slot that a container holds."""

    name: SlotName
    """ Such as hp-0 or be-3. """

    priority: Priority
    """ Its kind. """

    pod: PodReference | None = None
    """ Who holds it; absent where it is held by a program outside the cluster. """

    share: Annotated[str | None, Field(max_length=253)] = None
    """ The GPUShare that its grant comes from, in the pod's namespace; absent: the defaults. """

    generation: Annotated[int | None, Field(ge=0)] = None
    """ The generation of that share, as applied. """

    memory_limit: Memory | None = None
    """ What each of its processes may allocate. Unit: bytes. """

    weight: Number | None = None
    """ be: its part of the time that hp leaves, in proportion to this. """

    clients: Count = 0
    """ Processes that have joined it. """


class AppliedPolicy(Model):
    """How the GPU is shared now."""

    name: PolicyName
    """ The policy. """

    share: Annotated[str | None, Field(max_length=507)] = None
    """ The share that decided it, as NAMESPACE/NAME; absent: the agent's default. """

    max_slowdown: Number | None = None
    """ How much longer hp's work may take than alone. """

    minimum_share: Number | None = None
    """ The share of the time for which be runs, however busy hp is. """

    window: Duration | None = None
    """ be work in flight. """


class UnmanagedProcess(Model):
    """A process on the GPU that is not under the hook."""

    process_id: Annotated[int, Field(ge=0)]
    """ The process, as the node sees it. """

    command: Annotated[str, Field(max_length=64)] = ""
    """ Its short name. """

    pod: PodReference | None = None
    """ The pod that it belongs to, where that is known. """


class GPUDeviceStatus(Model):
    """What is true of the GPU, as its node's agent sees it."""

    observed_generation: Annotated[int | None, Field(ge=0)] = None
    """ The metadata.generation whose spec the agent has carried out or is carrying out. """

    node: Annotated[str | None, Field(max_length=253)] = None
    """ The node that the GPU is in. """

    uuid: Uuid | None = None
    """ The GPU's UUID, as the driver writes it. """

    index: Count | None = None
    """ Its number on the node. """

    model: Annotated[str | None, Field(max_length=128)] = None
    """ As the driver names it. """

    simulated: bool | None = None
    """ Whether it is a simulated GPU, for trying things out. """

    health: Literal["Healthy", "Unhealthy", "Unknown"] | None = None
    """ Whether pods may come to it. """

    mode: Mode | None = None
    """ The mode that it is in now. """

    memory: DeviceMemory | None = None
    """ Its memory. """

    policy: AppliedPolicy | None = None
    """ How it is shared now. """

    slots: SlotCounts | None = None
    """ Its slots. """

    held_slots: Annotated[
        list[SlotRow] | None,
        Field(
            max_length=SLOTS_MAX,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = None
    """ The slots that containers hold. """

    hp_busy_ratio: Number | None = None
    """ Part of the time in which an hp process had work on it. 0 to 1. """

    client_count: Count | None = None
    """ Processes that have joined it. """

    clients: Annotated[list[ClientRow] | None, Field(max_length=ROWS_MAX)] = None
    """ At most 64 of them, those that fare worst first. """

    unmanaged_process_count: Count | None = None
    """ Processes on it that are not under the hook. """

    unmanaged: Annotated[list[UnmanagedProcess] | None, Field(max_length=UNMANAGED_MAX)] = None
    """ At most 16 of them. """

    agent_version: Annotated[str | None, Field(max_length=64)] = None
    """ The version of the node agent. """

    message: Sentence | None = None
    """ What people should know of the GPU beside its conditions. """

    conditions: Conditions | None = None
    """ Ready: pods may come to it. HookInjected: every process on it is under the hook. ModePending: the mode changes
    when its last client has gone. PolicyConflict: its hp pods' shares ask for different policies. Degraded: something
    keeps less than was promised. """


class GPUDevice(Model):
    """One physical GPU, named by its UUID in lower case."""

    api_version: Literal["orion.gpu/v1alpha1"] = "orion.gpu/v1alpha1"
    kind: Literal["GPUDevice"] = "GPUDevice"
    metadata: Metadata
    spec: GPUDeviceSpec = GPUDeviceSpec()
    status: GPUDeviceStatus | None = None

    rules = (
        Rule(
            "self.metadata.name.matches('^gpu-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')",
            "metadata.name must be the GPU's UUID in lower case, such as gpu-5e4f6a2c-0d1b-4c3a-9f8e-7b6a5d4c3b2a",
            holds=lambda self: _is_device_name(self.metadata.name),
        ),
    )


def _is_device_name(name: str) -> bool:
    return re.fullmatch("gpu-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", name) is not None


KIND = Kind(
    GPUDevice,
    plural="gpudevices",
    singular="gpudevice",
    short=("gpu", "gpus"),
    scope="Cluster",
    columns=(
        Column("Node", ".status.node", "string", "The node that the GPU is in."),
        Column("Model", ".status.model", "string", "As the driver names it."),
        Column("Memory", ".status.memory.total", "string", "All of its memory.", wide=True),
        Column("Mode", ".status.mode", "string", "The mode that it is in now."),
        Column("Policy", ".status.policy.name", "string", "How it is shared now."),
        Column("HP", ".status.slots.hp.held", "integer", "hp slots that containers hold."),
        Column("BE", ".status.slots.be.held", "integer", "be slots that containers hold."),
        Column("Clients", ".status.clientCount", "integer", "Processes that have joined it.", wide=True),
        Column("Cordoned", ".spec.cordon", "boolean", "Whether no further pods come to it."),
        Column("Health", ".status.health", "string", "Whether pods may come to it."),
        condition_column("Ready", "Whether pods may come to it."),
        AGE,
    ),
    # A node's agent watches its own GPUs by this, in one watch; all agents watching all GPUs would be a flood.
    selectable=(".status.node",),
)
