"""The neutral description of what a container gets. Paths of the node in it stay valid for the container's life."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Mount:
    """A file or folder of the node in the container."""

    source: Path
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class DeviceNode:
    """A device node of the node in the container."""

    source: Path
    target: str
    permissions: str = "rw"


@dataclass
class Description:
    """What one container gets."""

    mounts: list[Mount] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    device_nodes: list[DeviceNode] = field(default_factory=list)
    cdi_names: list[str] = field(default_factory=list)
    """ Devices that the container runtime looks up in other specifications on the node. """
