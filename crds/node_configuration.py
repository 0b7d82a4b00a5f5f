"""The file that says how GPUs are offered on nodes: which of them, in how many slots, and how containers get them.

One file for all nodes (a ConfigMap), with what differs on a node under its name, so that a fleet has one thing to read
and to change. The node agent reads which GPUs and how many slots, the device plugin how containers get them; both look
at it again and again and take a change in without a restart. A file that cannot be read changes nothing: what was read
last stands, and the reason is said. Unlike API objects it refuses fields that it does not know: nobody but its owner
writes it, and a field that does nothing would be a misspelt one.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, StrictBool

from orion.crds.errors import Unreadable
from orion.crds.model import Model

SLOTS_MAX = 64


class DeviceListStrategy(StrEnum):
    """How a container is handed its GPU; the names are those of NVIDIA's device plugin, but for `device-nodes`."""

    ENVVAR = "envvar"
    """ NVIDIA_VISIBLE_DEVICES, read by NVIDIA's container runtime. """
    CDI_ANNOTATIONS = "cdi-annotations"
    """ CDI names in an annotation: runtimes that know CDI, kubelets that do not. """
    CDI_CRI = "cdi-cri"
    """ CDI names in the field of the CRI: containerd 1.7 and later, CRI-O. """
    DEVICE_NODES = "device-nodes"
    """ The device nodes and the driver's libraries, mounted by us: any runtime. """


class Preload(StrEnum):
    """By what a container's processes load the hook."""

    ENVIRONMENT = "environment"
    """ LD_PRELOAD, which the webhook wrote into the pod. """
    FILE = "file"
    """ /etc/ld.so.preload too, mounted read-only: also processes that drop their environment. """


class OnNoAgent(StrEnum):
    """What becomes of a container that starts while no agent answers."""

    HOLD = "hold"
    """ It waits: the kubelet tries again. """
    START = "start"
    """ It starts, and joins when an agent is there. """


Slots = Annotated[int, Field(ge=0, le=SLOTS_MAX)]


class SlotNumbers(Model):
    """How many slots a GPU has."""

    hp: Slots = 1
    be: Slots = 8


class GPUSlots(Model):
    """How many slots one GPU has, where that differs from the others."""

    gpu: Annotated[str, Field(min_length=1, max_length=64)]
    """ Its UUID, or its number on the node. """

    hp: Slots | None = None
    be: Slots | None = None


class NodeSettings(Model):
    """How the GPUs of one node are offered; what is not said is the default."""

    gpus: Literal["all"] | list[str] = "all"
    """ Those that Orion offers: UUIDs, or numbers on the node as text. MIG-enabled ones never are. """

    slots: SlotNumbers = SlotNumbers()
    """ Of each GPU. """

    slots_by_gpu: list[GPUSlots] = Field(default_factory=list, alias="slotsByGPU")
    """ Of those that differ. """

    coexist: StrictBool = False
    """ Whether slots are offered on GPUs that another plugin offers too. """

    device_list_strategy: DeviceListStrategy = DeviceListStrategy.ENVVAR
    driver_root: Annotated[str, Field(pattern="^/")] = "/"
    """ Where the driver's files lie, as the node sees them: /run/nvidia/driver with a containerised driver. """

    preload: Preload = Preload.ENVIRONMENT
    on_no_agent: OnNoAgent = OnNoAgent.START

    def slots_of(self, uuid: str, index: int) -> SlotNumbers:
        """Return how many slots a GPU has."""
        own = next((each for each in self.slots_by_gpu if each.gpu in (uuid, str(index))), None)
        if own is None:
            return self.slots
        hp, be = (self.slots.hp if own.hp is None else own.hp), (self.slots.be if own.be is None else own.be)
        return SlotNumbers(hp=hp, be=be)

    def includes(self, uuid: str, index: int) -> bool:
        """Return whether Orion offers a GPU."""
        return self.gpus == "all" or uuid in self.gpus or str(index) in self.gpus


class NodeConfiguration(NodeSettings):
    """The whole file."""

    version: Literal["v1"]
    """ Of the file's format. """

    nodes: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """ What differs, by the node's name: the same fields, each as a whole. """

    def for_node(self, name: str) -> NodeSettings:
        """Return the settings of a node.

        Raises:
            Unreadable: what is said of the node has no meaning.
        """
        fields = self.plain()
        del fields["version"], fields["nodes"]
        return NodeSettings.read_strictly(fields | self.nodes.get(name, {}), f"nodes.{name}")


def parse(text: str, what: str) -> NodeConfiguration:
    """Return what a file says; the settings of every node it names are checked too.

    Raises:
        Unreadable: it is not YAML, or says what has no meaning; the sentence names the field.
    """
    try:
        plain = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Unreadable(f"{what}: it is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(plain, Mapping):
        raise Unreadable(f"{what}: it must begin with `version: v1`, and holds {type(plain).__name__}")
    configuration = NodeConfiguration.read_strictly(dict(plain), what)
    for name in configuration.nodes:
        configuration.for_node(name)
    return configuration
