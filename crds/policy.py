"""The names of priorities, policies and modes."""

from enum import StrEnum


class Priority(StrEnum):
    """The priority of a pod on its GPU."""

    HP = "hp"
    """ High-priority: latency matters. """
    BE = "be"
    """ Best-effort: throughput matters. """


class PolicyName(StrEnum):
    """How the clients of a GPU share it; the node agent uses the same names.

    Time quotas and SM partitions (`token`, `partition`) are absent until an agent implements them. An API version can
    get new values later, and a value without an effect would be worse than a rejected one.
    """

    ORION = "orion"
    GATE = "gate"
    NONE = "none"


class Oversubscribe(StrEnum):
    """How a be slot gives back device memory that it has beyond its request."""

    NONE = "none"
    """ Not at all: it has no more than its request. """
    PARK = "park"
    """ Its processes leave the GPU's memory, wait, and return. """
    UNIFIED = "unified"
    """ Its device memory is managed memory, which the driver moves page by page. """


class Mode(StrEnum):
    """Whether the contexts of several processes run on the GPU at the same time."""

    TIMESLICE = "timeslice"
    MPS = "mps"
