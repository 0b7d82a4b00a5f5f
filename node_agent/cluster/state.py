"""The state of the slots that containers hold, as plain values, for the status of a GPUDevice and for Events.

holders/ determines the state: identity.py finds the pod of each slot, grants.py applies the pods' grants. reporting/
reads the state on the event loop. A returned value never changes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from orion.crds.grant import GrantedPolicy
from orion.crds.policy import Priority
from orion.node_agent.pages.policy_words import Policy
from orion.node_agent.slots.holders import Holder


@dataclass(frozen=True)
class Problem:
    """A difference between a pod's grant and what the agent applied, while it lasts."""

    reason: str
    """ One CamelCase word: GrantUnreadable, RoleDiffers, SlotHeldTwice. """

    message: str
    """ A sentence for people; printable ASCII. """


@dataclass(frozen=True)
class HolderState:
    """A slot that a container holds."""

    gpu: str
    """ "GPU-<uuid>", as the driver writes it. """

    name: str
    """ "hp-0", "be-3". """

    priority: Priority
    """ The slot's own priority; the priority in a grant does not change it. """

    holder: Holder | None
    """ None: a container is starting in the slot, and its pod is not known yet. """

    share: str | None = None
    """ The GPUShare that the grant comes from, in the pod's namespace; None: defaults apply, or there is no grant. """

    share_uid: str | None = None
    generation: int | None = None
    """ metadata.generation of the share whose grant was applied. """

    memory_limit_bytes: int = 0
    """ For each process in the slot; 0: no limit. """

    memory_request_bytes: int = 0
    """ How much of the GPU's memory the slot reserves; 0: nothing. """

    request_milli: int = 0
    """ The part of the GPU's time that a be slot is sure to get, in thousandths; 0: none. """

    reserved_milli: int = 0
    """ The part of the GPU's time that the slot's claim reserves, or else `request_milli`. """

    limit_milli: int = 0
    """ The most of the GPU's time that the slot may use, in thousandths; 0: no limit. """

    fail_closed: bool | None = None
    """ The pod must not start without the hook; None: its grant is not known. """

    problems: tuple[Problem, ...] = ()
    claim: str = ""
    """ The ResourceClaim that has the slot; empty: a container has it by a device plugin. """

    sharing: tuple[Holder, ...] = ()
    """ Other pods that have the slot by the same claim. """


@dataclass(frozen=True)
class Asking:
    """An hp pod whose share requests a policy."""

    holder: Holder
    slot: str
    share: str
    """ NAMESPACE/NAME. """

    policy: GrantedPolicy


@dataclass(frozen=True)
class PolicyState:
    """The policy of a GPU, and which pod decided it."""

    policy: Policy
    """ The policy in the GPU's policy page. """

    deciding: Asking | None = None
    """ The oldest hp pod that requests a policy; None: no pod requests one, so the node's default applies. """

    conflicting: tuple[Asking, ...] = ()
    """ The pods whose share requests another policy than the deciding pod's share, oldest first. """


@dataclass(frozen=True)
class GpuState:
    """The state of one GPU."""

    uuid: str
    slots: dict[Priority, int]
    """ Number of advertised slots by priority; includes held slots that are not configured any more. """

    held: tuple[HolderState, ...]
    """ The held slots by name. """

    policy: PolicyState

    @property
    def memory_reserved_bytes(self) -> int:
        """The sum of the memory requests in the holders' grants."""
        return sum(slot.memory_request_bytes for slot in self.held)

    @property
    def time_reserved_milli(self) -> int:
        """The sum of the time that the held slots reserve, in thousandths of the GPU."""
        return sum(slot.reserved_milli for slot in self.held)


class ClusterState(Protocol):
    """The interface through which the rest of the agent reads the state."""

    def of(self, uuid: str) -> GpuState:
        """Return one GPU's state.

        Raises:
            NotFound: the agent has no such GPU.
        """

    def pod(self, uid: str) -> Holder | None:
        """Return a pod of this node by its uid (as in a cgroup's name), with an empty container name."""

    def containers_of_claims(self) -> Mapping[Holder, frozenset[tuple[str, str]]]:
        """Return the containers that use claims, each with the claim's slots: UUID and name."""

    def on_change(self, notify: Callable[[], None]) -> None:
        """Call `notify` on the event loop after a change of what `of` returns. One call may cover several changes."""
