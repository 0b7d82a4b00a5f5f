"""The CDI part of a container runtime: it looks up device names in specifications and applies their edits.

It follows version 0.6 of the Container Device Interface. It applies the environment, mounts and device nodes of a
device and of the whole specification. As in the standard, a device name that is in no specification is an error.
"""

import json
from pathlib import Path
from typing import Any

from orion.device_plugin.kubelet import api_pb2

PREFIX = "cdi.k8s.io/"


class Unresolvable(Exception):
    """No specification has this device, so the container is not created."""


def names(answer: api_pb2.ContainerAllocateResponse) -> list[str]:
    """Return the qualified names that a container requests, by the CRI's field and by annotation."""
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
    """Return the answer with the edits of the specifications in a folder such as /etc/cdi.

    Raises:
        Unresolvable: no specification has a requested device.
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
