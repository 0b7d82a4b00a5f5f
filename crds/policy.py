"""The names of what a share may choose from: priorities, policies, modes."""

from enum import StrEnum


class Priority(StrEnum):
    """What a pod is to its GPU."""

    HP = "hp"
    """ High-priority: latency matters. """
    BE = "be"
    """ Best-effort: throughput matters. """


class PolicyName(StrEnum):
    """How a GPU's clients share it; the names are the node agent's.

    Time quotas and SM partitions (`token`, `partition`) are left out until an agent can carry them out: a value can be
    added to a version of an API, and a name that does nothing would be worse than one that is refused.
    """

    ORION = "orion"
    GATE = "gate"
    NONE = "none"


class Mode(StrEnum):
    """Whether the contexts of several processes run together."""

    TIMESLICE = "timeslice"
    MPS = "mps"
