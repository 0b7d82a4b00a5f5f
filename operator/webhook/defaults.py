"""Settings of the installation for admission. The chart sets them from its values."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from orion import hook
from orion.crds.allocation import Allocation, Giver
from orion.crds.governing import SHARES_MAX


class Defaults(BaseModel):
    """Defaults for pods without a GPUShare, and paths on the nodes and in containers."""

    model_config = ConfigDict(frozen=True)

    allocation: Allocation = Allocation.DEVICE_PLUGIN
    """ Whether pods get slots as resources of a device plugin, by ResourceClaims, or as their nodes choose. """

    by_node_default: Giver = Giver.DEVICE_PLUGIN
    """ Where each node chooses: the program that gives slots to a pod that could get them from both. """

    spread: bool = True
    """ Whether pods with a ResourceClaim go to the GPUs with the fewest tenants, or to the first GPU that fits. """

    gpu_taints: tuple[Annotated[str, Field(pattern=r"^[-._/A-Za-z0-9]{1,316}$")], ...] = ()
    """ Keys of node taints that pods with a claim tolerate. The API server adds tolerations for resources alone. """

    require_share: bool = False
    """ Whether to reject pods that no GPUShare governs. """

    shares_per_namespace: Annotated[int, Field(ge=1)] = SHARES_MAX
    """ How many shares of a namespace govern pods: the oldest ones. The operator needs the same value. """

    runtime_class: Annotated[str, Field(pattern="^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)] = ""
    """ The runtime class for pods with slots that name no runtime class; empty: they get no runtime class. """

    kubelet_root: Annotated[str, Field(pattern="^/[^:\\s]*[^:\\s/]$")] = "/var/lib/kubelet"
    """ The kubelet's --root-dir on the nodes; pods with slots may not mount it. """

    root: Annotated[str, Field(pattern="^/[^:\\s]*[^:\\s/]$")] = hook.CONTAINER_ROOT
    """ The folder in a container that holds Orion's mounts. """

    hook: Annotated[str, Field(pattern="^/[^:\\s]+$")] = hook.CONTAINER_LIBRARY
    """ The path in a container at which the device plugin mounts the hook. """
