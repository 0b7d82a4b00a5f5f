"""Writes descriptions of what containers get as a specification of the Container Device Interface (CDI).

A device's own CDI names (`Description.cdi_names`) are devices of other specifications. CDI cannot refer to them, so who
names a device of this specification to the container runtime must name them, too.
"""

from collections.abc import Mapping, Sequence
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


def add_hook(
    specification: Mapping[str, Any], device: str, moment: str, command: Sequence[str], timeout_seconds: int
) -> dict[str, Any]:
    """Return a specification in which a program runs at each start of a container with a device.

    Args:
        specification: as `specification` returns it.
        device: the device's name.
        moment: when the program runs, as CDI names it: createRuntime and others.
        command: the program's path on the node, and its arguments.
        timeout_seconds: the container runtime kills the program after so long, and does not start the container.
    """
    hook = {"hookName": moment, "path": command[0], "args": [*command], "timeout": timeout_seconds}
    devices = [
        {**each, "containerEdits": {**each["containerEdits"], "hooks": [hook]}} if each["name"] == device else each
        for each in specification["devices"]
    ]
    return {**specification, "devices": devices}


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
