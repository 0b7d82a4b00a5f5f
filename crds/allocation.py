"""How a cluster gives slots to pods, and who gives those of a node where each node chooses."""

from enum import StrEnum

OWNER_FILE = "owner"
""" In the agent's folder: its first line names the `Giver` of the node's slots. Agents write it where nodes choose. """
HANDING_OVER = "HandingOver"
""" Why a node's GPUs take no new pods while its slots are about to be given by another program. """


class Allocation(StrEnum):
    """How a cluster gives slots to pods."""

    DEVICE_PLUGIN = "device-plugin"
    DRA = "dra"
    BY_NODE = "by-node"
    """ The label `annotations.ALLOCATION` of each node says which of both. """

    @property
    def by_claims(self) -> bool:
        """Whether some pods get their slots by ResourceClaims."""
        return self is not Allocation.DEVICE_PLUGIN

    def gives_claims(self, label: str) -> bool:
        """Return whether a node with this value of its label gives slots by ResourceClaims."""
        return self is Allocation.DRA or (self is Allocation.BY_NODE and label == Giver.DRA)


class Giver(StrEnum):
    """The program that gives a node's slots to pods."""

    DEVICE_PLUGIN = "device-plugin"
    DRA = "dra"

    @property
    def program(self) -> str:
        """The program, for sentences."""
        return "the DRA driver" if self is Giver.DRA else "the device plugin"

    @property
    def other(self) -> "Giver":
        """The other program."""
        return Giver.DEVICE_PLUGIN if self is Giver.DRA else Giver.DRA
