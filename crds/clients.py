"""One process on a GPU, as a row of a status.

Figures are rounded where they are written, so that a status at rest does not change;
two decimals of a ratio are enough.
"""

from typing import Annotated

from pydantic import Field

from orion.crds.decimals import Number
from orion.crds.metadata import ObjectName
from orion.crds.model import Model
from orion.crds.policy import Priority
from orion.crds.quantities import Memory

GPU_UUID_PATTERN = "^GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"

Count = Annotated[int, Field(ge=0, json_schema_extra={"format": "int32"})]
Uuid = Annotated[str, Field(max_length=40, pattern=GPU_UUID_PATTERN)]
SlotName = Annotated[str, Field(max_length=63)]
Sentence = Annotated[str, Field(max_length=512)]


class PodReference(Model):
    """A container of a pod."""

    namespace: ObjectName
    """ The pod's namespace. """

    name: ObjectName
    """ The pod's name. """

    uid: Annotated[str | None, Field(max_length=64)] = None
    """ The pod's uid. """

    container: Annotated[str | None, Field(max_length=63)] = None
    """ The container's name. """


class ClientRow(Model):
    """A process that the hook has joined to a slot."""

    pod: PodReference | None = None
    """ Where it runs; absent where no pod holds the slot. """

    node: Annotated[str | None, Field(max_length=253)] = None
    """ The node. """

    gpu: Uuid | None = None
    """ The GPU's UUID, as the driver writes it. """

    slot: SlotName
    """ The slot on that GPU, such as hp-0 or be-3. """

    priority: Priority
    """ The slot's kind. """

    process_id: Annotated[int, Field(ge=0)]
    """ The process, as the node sees it. """

    command: Annotated[str, Field(max_length=16)] = ""
    """ Its short name, as the process itself says it. """

    state: Annotated[str, Field(max_length=16)] = ""
    """ hp: idle, busy, closing, linger; be: idle, running, gated; any: stopped. """

    memory: Memory | None = None
    """ Device memory that it has allocated. Unit: bytes. """

    busy_ratio: Number | None = None
    """ hp: part of the time in which it had work on the GPU; be: part of the time that its work took there. 0 to 1. """

    gated_ratio: Number | None = None
    """ be: part of the time in which it waited for hp. 0 to 1. """

    slowdown: Number | None = None
    """ hp: its work's time with overlap over that without. """

    message: Sentence | None = None
    """ What people should know of it; absent when all is well. """
