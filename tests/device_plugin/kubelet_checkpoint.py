"""The stand-in kubelet's checkpoint of its allocations, in the format of Kubernetes 1.34."""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from orion.device_plugin.kubelet import api_pb2

NAME = "kubelet_internal_checkpoint"


@dataclass
class Entry:
    """One entry: what a container got of a resource."""

    pod: str
    container: str
    resource: str
    devices: list[str]
    response: api_pb2.ContainerAllocateResponse


def write(folder: Path, entries: Iterable[Entry], registered: Mapping[str, Iterable[str]]) -> None:
    """Replace the file by one with these entries, and with the device IDs of each resource."""
    lines = [
        {
            "PodUID": entry.pod,
            "ContainerName": entry.container,
            "ResourceName": entry.resource,
            "DeviceIDs": {"-1": entry.devices},
            "AllocResp": base64.b64encode(entry.response.SerializeToString()).decode(),
        }
        for entry in entries
    ]
    devices = {resource: sorted(ids) for resource, ids in registered.items()}
    data = {"PodDeviceEntries": lines or None, "RegisteredDevices": devices}
    fresh = folder / ".checkpoint"
    fresh.write_text(json.dumps({"Data": data, "Checksum": 1}))
    fresh.replace(folder / NAME)


def read(folder: Path) -> list[Entry]:
    """Return the entries; none if there is no file."""
    try:
        lines = json.loads((folder / NAME).read_text())["Data"]["PodDeviceEntries"] or []
    except FileNotFoundError:
        return []
    return [_entry(line) for line in lines]


def _entry(line: Mapping[str, object]) -> Entry:
    by_node, response = line["DeviceIDs"], line["AllocResp"]
    assert isinstance(by_node, dict)
    assert isinstance(response, str)
    return Entry(
        str(line["PodUID"]),
        str(line["ContainerName"]),
        str(line["ResourceName"]),
        [device for devices in by_node.values() for device in devices],
        api_pb2.ContainerAllocateResponse.FromString(base64.b64decode(response)),
    )
