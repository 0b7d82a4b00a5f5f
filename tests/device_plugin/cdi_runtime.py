"""The part of a container runtime that knows CDI: it looks names up in specifications and applies their edits.

By the Container Device Interface's specification, 0.6: environment, mounts and device nodes, of the device and of the
whole specification; a name that no specification has is an error, as it is there.
"""

import json
from pathlib import Path
from typing import Any

from orion.device_plugin.kubelet import api_pb2

PREFIX = "cdi.k8s.io/"


class Unresolvable(Exception):
    """A container that asks for this device is not created."""


def names(answer: api_pb2.ContainerAllocateResponse) -> list[str]:
    """Return the qualified names that a container asks for, by the CRI's field and by annotation."""
    by_annotation = [value for key, value in answer.annotations.items() if key.startswith(PREFIX)]
    for key in answer.annotations:
        if key.startswith(PREFIX):
            name = key.removeprefix(PREFIX)
            assert len(name) <= 63
            assert name.replace("-", "").replace("_", "").replace(".", "").isalnum()
    return [device.name for device in answer.cdi_devices] + [
        name for value in by_annotation for name in value.split(",")
    ]


def apply(answer: api_pb2.ContainerAllocateResponse, folder: Path) -> api_pb2.ContainerAllocateResponse:
    """Return what a container gets beside, by the specifications of a folder such as /etc/cdi.

    Raises:
        Unresolvable: a device that no specification has.
    """
    specifications = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    edited = api_pb2.ContainerAllocateResponse()
    edited.CopyFrom(answer)
    whole: list[str] = []
    for name in names(answer):
        kind, _, device = name.partition("=")
        found = [
            (specification, each)
            for specification in specifications
            if specification["kind"] == kind
            for each in specification["devices"]
            if each["name"] == device
        ]
        if not found:
            raise Unresolvable(f"unresolvable CDI devices {name}")
        specification, entry = found[0]
        if kind not in whole:
            whole.append(kind)
            _edit(edited, specification.get("containerEdits", {}))
        _edit(edited, entry["containerEdits"])
    return edited


def _edit(answer: api_pb2.ContainerAllocateResponse, edits: dict[str, Any]) -> None:
    for each in edits.get("env", []):
        name, _, value = each.partition("=")
        answer.envs[name] = value
    for mount in edits.get("mounts", []):
        answer.mounts.add(
            host_path=mount["hostPath"],
            container_path=mount["containerPath"],
            read_only="ro" in mount.get("options", []),
        )
    for node in edits.get("deviceNodes", []):
        answer.devices.add(container_path=node["path"], host_path=node.get("hostPath", node["path"]), permissions="rw")
