"""The GPU time of a slot, as rows in the statuses of GPUDevices and GPUShares have it.

The writer of a status rounds the figures: parts to two decimals, the debt to tenths of a second. So an idle slot, or
one that always gets the same, causes no status update.
"""

from typing import Annotated

from pydantic import Field

from orion.crds.clients import PodReference, SlotName, Uuid
from orion.crds.decimals import Number
from orion.crds.durations import Duration
from orion.crds.model import Model
from orion.crds.parking import Parked


class SlotUsage(Model):
    """The GPU time of a slot in about the last 10 s, as parts of that time, 0 to 1."""

    due: Number
    """ be: what requests and limits gave the slot, of the time that hp left. hp: what it used. """

    charged: Number
    """ The time of the slot's turns without hp's part, and what ran on after them; without turns, the same as measured.
    """

    measured: Number
    """ The time that the slot's work took on the GPU, as its processes report it. """

    waited: Number
    """ The time during which a launch of the slot waited for a turn or for hp. """

    debt: Duration | None = None
    """ be: what the slot has used beyond what it was due; it comes off the slot's next turns. Absent: under 0.05 s. """


class ShareSlotRow(Model):
    """A slot of a governed pod, with its GPU time."""

    pod: PodReference | None = None
    """ The pod and container that hold the slot. """

    node: Annotated[str | None, Field(max_length=253)] = None
    """ The node of the GPU. """

    gpu: Uuid | None = None
    """ The GPU's UUID, as the driver writes it. """

    slot: SlotName
    """ The slot on that GPU, such as hp-0 or be-3. """

    compute_request: Number | None = None
    """ The part of the time that the slot gets at least; absent: no request. """

    compute_limit: Number | None = None
    """ The part of the GPU's time that the slot gets at most; absent: no limit. """

    usage: SlotUsage | None = None
    """ The GPU time of the slot; absent, for a parked slot only, if no process has used it for 10 s. """

    parked: Parked | None = None
    """ Since when the processes of the slot have left the GPU's memory, and how much they left; absent: they have not.
    """
