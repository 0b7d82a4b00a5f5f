"""The configuration file of nodes: which GPUs Orion advertises, how many slots each has, how containers get GPUs.

One file (a ConfigMap) serves all nodes, so that a cluster has one place to read and change. A section overrides
settings for the nodes that have certain labels, because nobody knows the names of nodes that an autoscaler makes. The
node agent uses the GPUs and slots, the device plugin the rest. Both reread the file periodically and apply a change
without a restart. If the file is invalid, the last valid settings stay in force, and the error is logged. Unlike API
objects, the file must not have unknown fields: only its owner writes it, so an unknown field is a misspelt one.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, StrictBool

from orion.crds.model import Model
from orion.errors import Unreadable

SLOTS_MAX = 64


class DeviceListStrategy(StrEnum):
    """How a container gets its GPU. The names are those of NVIDIA's device plugin, except `device-nodes`."""

    ENVVAR = "envvar"
    """ The variable NVIDIA_VISIBLE_DEVICES, which NVIDIA's container runtime reads. """
    CDI_ANNOTATIONS = "cdi-annotations"
    """ CDI names in an annotation, for runtimes that support CDI under a kubelet that does not. """
    CDI_CRI = "cdi-cri"
    """ CDI names in the CRI's own field, for containerd 1.7 and later and for CRI-O. """
    DEVICE_NODES = "device-nodes"
    """ The device plugin mounts the device nodes and the driver's libraries itself, for any runtime. """


class Preload(StrEnum):
    """How a container's processes load the hook."""

    ENVIRONMENT = "environment"
    """ By LD_PRELOAD, which the webhook writes into the pod. """
    FILE = "file"
    """ By LD_PRELOAD and by a read-only mount of /etc/ld.so.preload. The mount also covers processes that drop their
    environment. """


class OnNoAgent(StrEnum):
    """What happens to a container that starts while no agent answers."""

    HOLD = "hold"
    """ The container waits: the kubelet retries the start. """
    START = "start"
    """ The container starts, and its processes join when an agent runs. """


Slots = Annotated[int, Field(ge=0, le=SLOTS_MAX)]


class SlotNumbers(Model):
    """The number of slots of a GPU."""

    hp: Slots = 1
    be: Slots = 8


class GPUSlots(Model):
    """The number of slots of one GPU, if it differs from that of the others."""

    gpu: Annotated[str, Field(min_length=1, max_length=64)]
    """ The GPU's UUID, or its index on the node. """

    hp: Slots | None = None
    be: Slots | None = None


class NodeSettings(Model):
    """The settings of one node; an absent field has its default."""

    gpus: Literal["all"] | list[str] = "all"
    """ The GPUs that Orion advertises: UUIDs, or indices on the node as text. It never advertises MIG-enabled GPUs. """

    slots: SlotNumbers = SlotNumbers()
    """ The slots of each GPU. """

    slots_by_gpu: list[GPUSlots] = Field(default_factory=list, alias="slotsByGPU")
    """ The slots of GPUs whose numbers of slots differ from `slots`. """

    coexist: StrictBool = False
    """ Whether to advertise slots of GPUs that another device plugin advertises, too. """

    device_list_strategy: DeviceListStrategy = DeviceListStrategy.ENVVAR
    driver_root: Annotated[str, Field(pattern="^/")] = "/"
    """ The path of the driver's files on the node; /run/nvidia/driver with a containerised driver. """

    preload: Preload = Preload.ENVIRONMENT
    on_no_agent: OnNoAgent = OnNoAgent.START

    def slots_of(self, uuid: str, index: int) -> SlotNumbers:
        """Return the number of slots of a GPU."""
        own = next((each for each in self.slots_by_gpu if each.gpu in (uuid, str(index))), None)
        if own is None:
            return self.slots
        hp, be = (self.slots.hp if own.hp is None else own.hp), (self.slots.be if own.be is None else own.be)
        return SlotNumbers(hp=hp, be=be)

    def includes(self, uuid: str, index: int) -> bool:
        """Return whether Orion advertises a GPU."""
        return self.gpus == "all" or uuid in self.gpus or str(index) in self.gpus


class NodesWithLabels(NodeSettings):
    """The settings of the nodes that have all of these labels. Only the fields that are given apply."""

    match_labels: Annotated[dict[str, str], Field(min_length=1)]


class NodeConfiguration(NodeSettings):
    """The whole file."""

    version: Literal["v1"]
    """ The version of the file's format. """

    nodes: list[NodesWithLabels] = Field(default_factory=list)
    """ Settings of some nodes. A field of a section replaces the whole field for all nodes. If several sections match a
    node and have the same field, the last one applies. """

    def for_labels(self, labels: Mapping[str, str]) -> NodeSettings:
        """Return the settings of a node with these labels."""
        matching = (each for each in self.nodes if each.match_labels.items() <= labels.items())
        given: dict[str, Any] = {}
        for settings in (self, *matching):
            given |= {
                name: getattr(settings, name) for name in NodeSettings.model_fields if name in settings.model_fields_set
            }
        return NodeSettings(**given)


def parse(text: str, what: str) -> NodeConfiguration:
    """Return the configuration in a file's text.

    Raises:
        Unreadable: the text is not YAML or is invalid; the sentence names the field.
    """
    try:
        plain = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Unreadable(f"{what}: it is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(plain, Mapping):
        raise Unreadable(f"{what}: it must begin with `version: v1`, but contains {type(plain).__name__}")
    return NodeConfiguration.read_strictly(dict(plain), what)
