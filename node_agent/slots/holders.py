"""Who holds a slot: the container that a slot belongs to, where somebody knows.

The agent itself sees processes that come through a slot's socket, and no pods. In a cluster the kubelet knows
(cluster/holders/identity.py); elsewhere nobody does, and a slot's processes speak for themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from orion.hook import layout
from orion.node_agent.slots.slot import Slot


@dataclass(frozen=True)
class Holder:
    """A container of a pod."""

    namespace: str
    pod: str
    container: str
    uid: str = ""
    """ The pod's; empty: not known yet. """

    @property
    def name(self) -> str:
        """The pod, as NAMESPACE/NAME."""
        return f"{self.namespace}/{self.pod}"


@dataclass(frozen=True)
class Prepared:
    """What a slot was made ready for."""

    pod: str = ""
    """ NAMESPACE/NAME; empty: the pod, or what it was granted, is not known. """

    fail_closed: bool = False


class Holders(Protocol):
    """Knows who holds slots."""

    async def prepared(self, slot: Slot) -> Prepared:
        """Find out who holds a slot that was made ready just now, and give it their grant; bounded in time."""

    async def missed(self) -> None:
        """Find out who holds which slot, and open those slots; called for a slot that is not open; bounded in time."""

    def holds(self, slot: Slot) -> bool:
        """Return whether some container holds a slot, or begins in it."""

    def held(self, gpu: str) -> Mapping[str, layout.Role]:
        """Return the slots of a GPU that containers hold, by name; there may be some that are not open."""

    def reserved_bytes(self, gpu: str) -> int:
        """Return what the holders of a GPU's slots ask for of its memory."""

    @property
    def certain(self) -> bool:
        """Whether a slot that nobody is known to hold is held by nobody."""

    def waits_for(self) -> str:
        """Return whom it has not heard from since the agent began, as a sentence; empty: it has heard from all."""


class NoHolders:
    """Outside a cluster: an implementation, so that nothing else has to ask."""

    certain = True

    async def prepared(self, slot: Slot) -> Prepared:
        """Return that nobody is known."""
        return Prepared()

    async def missed(self) -> None:
        """There is nobody to ask."""

    def holds(self, slot: Slot) -> bool:
        """Return whether the slot was made for a process, which lives."""
        return slot.owner is not None

    def held(self, gpu: str) -> Mapping[str, layout.Role]:
        """Return nothing."""
        return {}

    def reserved_bytes(self, gpu: str) -> int:
        """Return 0."""
        return 0

    def waits_for(self) -> str:
        """Return nothing."""
        return ""
