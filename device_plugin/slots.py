"""Names: the two resources, and the kubelet's device ids, each of which is one slot of one GPU."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from orion.device_plugin.errors import BadRequest

_ID = re.compile(r"(?P<gpu>GPU-[A-Za-z0-9-]{1,43})::(?P<role>hp|be)-(?P<number>0|[1-9][0-9]{0,2})")


class Resource(StrEnum):
    """What pods ask for."""

    HP = "orion.gpu/hp"
    BE = "orion.gpu/be"

    @property
    def role(self) -> str:
        """How the names of its slots begin."""
        return self.value.rpartition("/")[2]


@dataclass(frozen=True, order=True)
class Slot:
    """One slot; as text a device id, at most 57 characters of the 63 that the protocol allows."""

    gpu: str
    """ "GPU-<uuid>" """
    role: str
    number: int

    @property
    def name(self) -> str:
        """What the agent calls it, on its GPU."""
        return f"{self.role}-{self.number}"

    def __str__(self) -> str:
        return f"{self.gpu}::{self.name}"


def parse(device_id: str) -> Slot:
    """Return the slot of a device id.

    Raises:
        BadRequest: it is none; so a slot's fields are fit for paths.
    """
    found = _ID.fullmatch(device_id)
    if found is None:
        raise BadRequest(f"{device_id!r} is no slot of Orion's: those are named such as GPU-<uuid>::be-0")
    return Slot(found["gpu"], found["role"], int(found["number"]))


def of_resource(resource: Resource, device_ids: Iterable[str]) -> list[Slot]:
    """Return the slots of device ids that the kubelet names for a resource, each once, in order.

    Raises:
        BadRequest: one is no slot, or one of the other resource.
    """
    slots = sorted({parse(device) for device in device_ids})
    for slot in slots:
        if slot.role != resource.role:
            raise BadRequest(f"{slot} is no slot of {resource}")
    return slots
