"""Names of the two resources, and of the kubelet's device IDs: each device is one slot of one GPU."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from orion.errors import Invalid

_ID = re.compile(r"(?P<gpu>GPU-[A-Za-z0-9-]{1,43})::(?P<role>hp|be)-(?P<number>0|[1-9][0-9]{0,2})")


class Resource(StrEnum):
    """A resource that pods request."""

    HP = "orion.gpu/hp"
    BE = "orion.gpu/be"

    @property
    def role(self) -> str:
        """The prefix of its slots' names: hp or be."""
        return self.value.rpartition("/")[2]


@dataclass(frozen=True, order=True)
class Slot:
    """One slot. Its text form is the device ID, at most 57 characters of the 63 that the protocol allows."""

    gpu: str
    """ "GPU-<uuid>" """
    role: str
    number: int

    @property
    def name(self) -> str:
        """The agent's name of this slot, unique on its GPU."""
        return f"{self.role}-{self.number}"

    def __str__(self) -> str:
        return f"{self.gpu}::{self.name}"


def parse(device_id: str) -> Slot:
    """Return the slot of a device ID. Its fields are safe to use in paths.

    Raises:
        Invalid: the text is not a device ID of Orion.
    """
    found = _ID.fullmatch(device_id)
    if found is None:
        raise Invalid(f"{device_id!r} is not a slot of Orion: slots have names such as GPU-<uuid>::be-0")
    return Slot(found["gpu"], found["role"], int(found["number"]))


def of_resource(resource: Resource, device_ids: Iterable[str]) -> list[Slot]:
    """Return the slots of device IDs that the kubelet lists for a resource, sorted and without duplicates.

    Raises:
        Invalid: an ID is not a slot, or is a slot of the other resource.
    """
    slots = sorted({parse(device) for device in device_ids})
    for slot in slots:
        if slot.role != resource.role:
            raise Invalid(f"{slot} is not a slot of {resource}")
    return slots
