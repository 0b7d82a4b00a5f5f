"""What an installation decides about admission; the chart's values end here."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from orion import hook


class Defaults(BaseModel):
    """What holds for pods of which no GPUShare says anything, and where things are in a container."""

    model_config = ConfigDict(frozen=True)

    require_share: bool = False
    """ Whether a pod that no GPUShare governs is refused. """

    runtime_class: Annotated[str, Field(pattern="^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)] = ""
    """ The runtime class of pods with slots that name none; empty: theirs is left as it is. """

    kubelet_root: Annotated[str, Field(pattern="^/[^:\\s]*[^:\\s/]$")] = "/var/lib/kubelet"
    """ The kubelet's --root-dir on the nodes; pods with slots may not mount it. """

    root: Annotated[str, Field(pattern="^/[^:\\s]*[^:\\s/]$")] = hook.CONTAINER_ROOT
    """ The folder of Orion's mounts in a container. """

    hook: Annotated[str, Field(pattern="^/[^:\\s]+$")] = hook.CONTAINER_LIBRARY
    """ The hook's path in a container, where the device plugin mounts it. """
