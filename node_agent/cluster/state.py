"""What is known of the slots that containers hold, as plain values: what a GPUDevice's status and events are made from.

Written by identity and grants, read by whoever tells the API server. Read on the event loop; a value
that was returned never changes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from orion.crds.grant import GrantedPolicy
from orion.crds.policy import Priority
from orion.node_agent.pages.policy_words import Policy
from orion.node_agent.slots.holders import Holder


@dataclass(frozen=True)
class Problem:
    """Something that is not as a pod's grant says, for as long as it is so."""

    reason: str
    """ One CamelCase word: GrantUnreadable, RoleDiffers. """

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
    """ The slot's own; what a grant says of it does not count. """

    holder: Holder | None
    """ None: a container has begun in it, and whose it is is not known yet. """

    share: str | None = None
    """ The GPUShare that its grant comes from, in the pod's namespace; None: the defaults, or no grant. """

    share_uid: str | None = None
    generation: int | None = None
    """ The share's metadata.generation, as applied. """

    memory_limit_bytes: int = 0
    """ Of each of its processes; 0: none. """

    memory_request_bytes: int = 0
    """ What it reserves of the GPU's memory; 0: nothing. """

    weight_milli: int = 1_000
    fail_closed: bool = False
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Asking:
    """An hp pod that asks for a policy, by its share."""

    holder: Holder
    slot: str
    share: str
    """ NAMESPACE/NAME. """

    policy: GrantedPolicy


@dataclass(frozen=True)
class PolicyState:
    """How a GPU is shared now, and who decided it."""

    policy: Policy
    """ As its page has it. """

    deciding: Asking | None = None
    """ The oldest of the hp pods that ask for a policy; None: nobody asks, the node's default applies. """

    conflicting: tuple[Asking, ...] = ()
    """ Those whose share asks for another policy than the deciding one, oldest first. """


@dataclass(frozen=True)
class GpuState:
    """One GPU."""

    uuid: str
    slots: dict[Priority, int]
    """ How many are offered of each kind; held ones that are not configured any more are among them. """

    held: tuple[HolderState, ...]
    """ By name. """

    policy: PolicyState

    @property
    def memory_reserved_bytes(self) -> int:
        """What the holders' grants ask for."""
        return sum(slot.memory_request_bytes for slot in self.held)


class ClusterState(Protocol):
    """What the rest of the agent may ask of identity and grants."""

    def of(self, uuid: str) -> GpuState:
        """Return one GPU's state.

        Raises:
            NotFound: there is no such GPU here.
        """

    def pod(self, uid: str) -> Holder | None:
        """Return any pod of this node by its uid (as a cgroup's name has it), its container left empty."""

    def on_change(self, tell: Callable[[], None]) -> None:
        """Call `tell`, on the event loop, after what `of` returns has changed; several changes may lead to one call."""
