"""One process on a GPU, as a row in the status of a GPUDevice or a GPUShare.

The writer of a status rounds the figures (ratios to two decimals), so that an idle client causes no status update.
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
    """ The pod and container of the process; absent if no pod holds the slot. """

    node: Annotated[str | None, Field(max_length=253)] = None
    """ The node on which the process runs. """

    gpu: Uuid | None = None
    """ The GPU's UUID, as the driver writes it. """

    slot: SlotName
    """ The slot on that GPU, such as hp-0 or be-3. """

    priority: Priority
    """ The priority of the slot. """

    process_id: Annotated[int, Field(ge=0)]
    """ The process ID in the PID namespace of the node. """

    command: Annotated[str, Field(max_length=16)] = ""
    """ The short command name, as the process itself reports it. """

    state: Annotated[str, Field(max_length=16)] = ""
    """ An hp process is idle, busy, closing (the hook checks that all its work on the GPU has completed) or linger (the
    work completed a moment ago, so the process still counts as busy). A be process is idle, running or gated (it waits
    for hp). A process that a signal has stopped is stopped. """

    memory: Memory | None = None
    """ Device memory that the process has allocated. Unit: bytes. """

    busy_ratio: Number | None = None
    """ hp: the fraction of the time during which the process had work on the GPU. be: the fraction of the time that its
    work took on the GPU. 0 to 1. """

    gated_ratio: Number | None = None
    """ be: the fraction of the time during which the process waited for hp. 0 to 1. """

    slowdown: Number | None = None
    """ hp: the time that its work takes with overlap, divided by the time without overlap. """

    message: Sentence | None = None
    """ What is wrong with the process, in a sentence; absent if nothing is. """
