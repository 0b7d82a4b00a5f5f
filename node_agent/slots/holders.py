"""Who holds a slot: the interface through which the agent learns a slot's container.

The agent itself sees only processes that join through a slot's socket, no pods. In a cluster, the kubelet knows the
container (cluster/holders/identity.py). Outside a cluster, slots have no holders, only processes.
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
    """ The pod's uid; empty: not known yet. """

    @property
    def name(self) -> str:
        """The pod, as NAMESPACE/NAME."""
        return f"{self.namespace}/{self.pod}"


@dataclass(frozen=True)
class Prepared:
    """The pod for which a slot was prepared."""

    pod: str = ""
    """ NAMESPACE/NAME; empty: the pod or its grant is not known. """

    fail_closed: bool = False


class Holders(Protocol):
    """Knows who holds the slots."""

    async def prepared(self, slot: Slot) -> Prepared:
        """Find out who holds a slot that was just reset, and apply that pod's grant. Returns within a time limit."""

    async def missed(self) -> None:
        """Find out which slots are held, and open them. Called if a requested slot is not open.

        Returns within a time limit.
        """

    async def granted(self, slot: Slot) -> None:
        """Wait for the grant of the pods whose claim has a slot. Returns within a time limit."""

    def claims_changed(self) -> None:
        """Take over which claims hold slots now (`Slot.claim`)."""

    def holds(self, slot: Slot) -> bool:
        """Return whether a container holds a slot, or starts in it."""

    def held(self, gpu: str) -> Mapping[str, layout.Role]:
        """Return the slots of a GPU that containers hold, by name; some of them may not be open."""

    def reserved_bytes(self, gpu: str) -> int:
        """Return how much of a GPU's memory the holders of its slots reserve."""

    def fail_closed(self, gpu: str) -> Mapping[str, bool]:
        """Return which pods with a slot of a GPU must not start without the hook, and which may, by uid, sorted.

        A pod is missing while its grant is not known.
        """

    def other_users(self) -> Mapping[str, tuple[str, ...]]:
        """Return the claims whose pods are others than the driver has named: by uid, the names of their pods."""

    @property
    def certain(self) -> bool:
        """Whether every slot without a known holder is free; false if the agent may not know some holders yet."""

    def waits_for(self) -> str:
        """Return a sentence that names who has not answered since the agent started; empty: all have answered."""


class NoHolders:
    """`Holders` outside a cluster, so that callers need no special case."""

    certain = True

    async def prepared(self, slot: Slot) -> Prepared:
        """Return that no pod is known."""
        return Prepared()

    async def missed(self) -> None:
        """Do nothing: there is no kubelet to query."""

    async def granted(self, slot: Slot) -> None:
        """Do nothing: there is no operator."""

    def claims_changed(self) -> None:
        """Do nothing: the claims' slots have their amounts already."""

    def holds(self, slot: Slot) -> bool:
        """Return whether a living process owns the slot."""
        return slot.owner is not None

    def held(self, gpu: str) -> Mapping[str, layout.Role]:
        """Return an empty mapping."""
        return {}

    def reserved_bytes(self, gpu: str) -> int:
        """Return 0."""
        return 0

    def fail_closed(self, gpu: str) -> Mapping[str, bool]:
        """Return no pod."""
        return {}

    def other_users(self) -> Mapping[str, tuple[str, ...]]:
        """Return an empty mapping."""
        return {}

    def waits_for(self) -> str:
        """Return an empty string."""
        return ""
