"""What an installation decides about admission; the chart's values end here."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from orion import hook

ROOT = "/run/orion"
""" What clients call $ORION_ROOT: slots and the hook are mounted below it, on nodes and in containers alike. """


class Defaults(BaseModel):
    """What holds for pods of which no GPUShare says anything, and where things are in a container."""

    model_config = ConfigDict(frozen=True)

    require_share: bool = False
    """ Whether a pod that no GPUShare governs is refused. """

    root: Annotated[str, Field(pattern="^/[^:\\s]*[^:\\s/]$")] = ROOT
    """ The folder of Orion's mounts in a container. """

    hook: Annotated[str, Field(pattern="^/[^:\\s]+$")] = f"{ROOT}/lib/{hook.HOOK}"
    """ The hook's path in a container, where the device plugin mounts it. """
