"""What is parked: a slot whose processes have left the GPU's memory for a while, as rows of statuses have it.

Its pod runs on, its programs wait, and what they held on the GPU is in the pod's host memory. The writer of a status
rounds the memory up to whole MiB.
"""

from typing import Annotated

from pydantic import Field

from orion.crds.model import Model
from orion.crds.quantities import Memory

Moment = Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})]
""" A time in RFC 3339 format, UTC. """


class Parked(Model):
    """Since when a slot is parked, and how much memory it left."""

    since: Moment
    """ The time at which the last of the slot's processes had left the GPU's memory, in RFC 3339 format. """

    memory: Memory
    """ What the slot's processes held on the GPU and now hold in the host memory of their pod. Unit: bytes. """
