"""Reads the kubelet's own record of its allocations: `kubelet_internal_checkpoint`, beside its socket.

The plugin reads three facts from it. The first is which files of the node the containers still mount: the plugin must
not remove these files. The second is which pod got a slot. The third is whether the container must not start, and why.
Kubernetes does not guarantee the file's format. Anything that
this module cannot parse is therefore an error, and the plugin then removes nothing.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orion.device_plugin import refused
from orion.device_plugin.kubelet import api_pb2
from orion.errors import Unreadable

NAME = "kubelet_internal_checkpoint"


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    pod_uid: str = Field(alias="PodUID")
    container: str = Field(alias="ContainerName")
    resource: str = Field(alias="ResourceName")
    device_ids: dict[str, list[str]] | list[str] | None = Field(alias="DeviceIDs", default=None)
    """ The device IDs by NUMA node. Kubelets before 1.20 write a plain list. """
    response: str | None = Field(alias="AllocResp", default=None)
    """ Base64 of a ContainerAllocateResponse. """


class _Data(BaseModel):
    entries: list[_Entry] | None = Field(alias="PodDeviceEntries")
    """ null if there are no entries. """


class _File(BaseModel):
    data: _Data = Field(alias="Data")


@dataclass(frozen=True)
class Allocation:
    """What one container got of one resource."""

    pod_uid: str
    container: str
    resource: str
    device_ids: frozenset[str]
    sources: frozenset[Path]
    """ Paths of the node that are mounted into the container. """
    refused: str = ""
    """ Why the container must not start; empty: it may start. """


def read(path: Path) -> list[Allocation]:
    """Return all allocations of the node, of every device plugin.

    Raises:
        Unreadable: the file is missing, or a part of it cannot be parsed.
    """
    try:
        found = _File.model_validate_json(path.read_bytes())
        return [_allocation(entry) for entry in found.data.entries or ()]
    except FileNotFoundError:
        raise Unreadable(f"the kubelet's checkpoint {path} does not exist") from None
    except (OSError, ValidationError, binascii.Error, DecodeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Unreadable(f"the kubelet's checkpoint {path} cannot be parsed: {reason}") from None


def of_devices(allocations: Sequence[Allocation], device_ids: Sequence[str]) -> Allocation | None:
    """Return the allocation that contains all these devices, if there is one."""
    asked = frozenset(device_ids)
    return next((each for each in allocations if each.device_ids and each.device_ids >= asked), None)


def _allocation(entry: _Entry) -> Allocation:
    by_node = entry.device_ids or {}
    lists = by_node.values() if isinstance(by_node, dict) else [by_node]
    response = api_pb2.ContainerAllocateResponse.FromString(base64.b64decode(entry.response or "", validate=True))
    return Allocation(
        entry.pod_uid,
        entry.container,
        entry.resource,
        frozenset(device for each in lists for device in each),
        frozenset(Path(mount.host_path) for mount in response.mounts),
        refused.reason_of(response),
    )
