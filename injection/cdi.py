"""Writes descriptions of what containers get as a specification of the Container Device Interface (CDI).

A device's own CDI names (`Description.cdi_names`) are devices of other specifications. CDI cannot refer to them, so who
names a device of this specification to the container runtime must name them, too.
"""

from collections.abc import Mapping
from typing import Any

from orion.injection.description import Description

VERSION = "0.6.0"
""" The first version whose kinds and names may have the characters that are used here. """


def specification(kind: str, devices: Mapping[str, Description]) -> dict[str, Any]:
    """Return a specification as plain JSON values.

    Args:
        kind: the devices' vendor and class, such as orion.gpu/claim.
        devices: what a container gets with each device, by the device's name.
    """
    return {
        "cdiVersion": VERSION,
        "kind": kind,
        "devices": [{"name": name, "containerEdits": _edits(given)} for name, given in devices.items()],
    }


def _edits(given: Description) -> dict[str, Any]:
    mounts = [
        {
            "hostPath": str(mount.source),
            "containerPath": mount.target,
            "options": ["rbind", "ro" if mount.read_only else "rw", "nosuid", "nodev"],
        }
        for mount in given.mounts
    ]
    nodes = [
        {"path": node.target, "hostPath": str(node.source), "permissions": node.permissions}
        for node in given.device_nodes
    ]
    edits: dict[str, Any] = {"env": [f"{name}={value}" for name, value in given.environment.items()], "mounts": mounts}
    return edits | ({"deviceNodes": nodes} if nodes else {})
