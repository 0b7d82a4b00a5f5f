"""GPUDevice: one physical GPU. The agent of its node creates the object; people and the operator write its `spec`.

The object's name is the GPU's UUID in lower case. So an agent finds its objects without a look-up, two agents never
write the same object, and a GPU that moves to another node keeps its settings. Only the agent writes the status.
"""

import re
from typing import Literal

from pydantic import StrictBool

from orion.crds.device_status import GPUDeviceStatus
from orion.crds.kinds import AGE, Column, Kind, condition_column
from orion.crds.metadata import Metadata
from orion.crds.model import Model
from orion.crds.policy import Mode
from orion.crds.rules import Rule


def device_name(uuid: str) -> str:
    """Return the name of the GPUDevice of a GPU."""
    return uuid.lower()


class GPUDeviceSpec(Model):
    """The wanted settings of this GPU. People and the operator write them; the agent of the node applies them."""

    cordon: StrictBool = False
    """ If true, no new pods get slots of this GPU; running pods keep theirs. Default: false. """

    mode: Mode = Mode.TIMESLICE
    """ timeslice: the GPU runs one process at a time, in time slices, and isolates the processes fully. mps: processes
    run at the same time through the MPS server. Then be may overlap hp, but a fatal fault of one process or of the
    server ends the work of all. A change takes effect when the GPU has no clients; until then the condition ModePending
    is True. Default: timeslice. """


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
        Column("Node", ".status.node", "string", "The node that has the GPU."),
        Column("Model", ".status.model", "string", "The GPU model, as the driver names it."),
        Column("MemoryUsed", ".status.memory.used", "string", "The memory in use, as the device reports it."),
        Column("Memory", ".status.memory.total", "string", "The total memory of the GPU."),
        Column("Reserved", ".status.memory.reserved", "string", "The memory that its pods reserve.", wide=True),
        Column("Mode", ".status.mode", "string", "The mode that the GPU is in now."),
        Column("Policy", ".status.policy.name", "string", "The policy by which the GPU is shared now."),
        Column("HP", ".status.slots.hp.held", "integer", "The number of hp slots that containers hold."),
        Column("BE", ".status.slots.be.held", "integer", "The number of be slots that containers hold."),
        Column("Clients", ".status.clientCount", "integer", "The number of processes that use slots.", wide=True),
        Column("Cordoned", ".spec.cordon", "boolean", "Whether the GPU is cordoned: new pods get no slots of it."),
        Column("Health", ".status.health", "string", "The health of the GPU."),
        condition_column("Ready", "Whether new pods may use the GPU."),
        AGE,
    ),
    # Each node's agent watches only its own GPUs through this field. If every agent watched every GPU, each status
    # update would go to all nodes.
    selectable=(".status.node",),
)
