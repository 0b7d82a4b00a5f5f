"""What `deciding.decide` looks at: GPUs and tenants at one moment, as plain values. Memory in bytes, times in seconds.

A tenant is what leaves and comes back as a whole: all slots of one pod, or of one program that `orion run` started.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

_LEAST_WEIGHT = 1e-6


class Place(Enum):
    """Where a tenant's memory is."""

    HERE = "here"
    LEAVING = "leaving"
    AWAY = "away"
    RETURNING = "returning"


@dataclass(frozen=True)
class Room:
    """The memory of one GPU."""

    free: int | None
    """ As the device says; None: it does not say. """
    reserve: int = 0
    """ What is kept free for hp. """
    margin: int = 0
    """ What must be free besides before a tenant comes back. """
    wished: int = 0
    """ What hp waits for now. """
    kept: int = 0
    """ What clients have been given and have not taken yet. """
    grown: int = 0
    """ What clients may have taken since the device was asked, so that it is not free for who comes back. """
    ending: int = 0
    """ What processes that have just ended may still hold. """
    restored: int = 0
    """ What those who come back have taken already, although the driver does not list it for them yet. """
    promised: int = 0
    """ What tenants that never leave are sure of, beyond what they hold. """
    owed: int = 0
    """ What such tenants wait for now, and are sure of. """
    rate: float = 0.0
    """ What hp takes a second at this time. """
    most: int = 0
    """ What hp may still take. """
    has_hp: bool = False
    """ hp has processes here. """

    @property
    def hp_may_grow(self) -> bool:
        """Whether hp may take more, or what the driver holds for hp may grow."""
        return self.has_hp or self.most > 0 or self.reserve > 0


@dataclass(frozen=True)
class Tenant:
    """A tenant; amounts are by GPU."""

    name: str
    place: Place
    since: float
    """ Since when it is there. """
    held: Mapping[str, int]
    """ What it holds; if it is away, what it held when it left. """
    wants: Mapping[str, int] = field(default_factory=dict)
    """ What it may hold soon, if that is more. """
    lacks: Mapping[str, int] = field(default_factory=dict)
    """ What of that it has not got: its allocations found no room. """
    coming: Mapping[str, int] = field(default_factory=dict)
    """ If it returns: what it has yet to take. """
    parks: bool = True
    is_hp: bool = False
    came: float = float("-inf")
    """ When it came back last; a person's wish ends what follows from it. """
    has_returned: bool = False
    """ It is here because it has come back, and not because it has just begun. """
    is_new: bool = False
    """ It has begun lately, so that nobody knows yet what it will hold. """
    is_half: bool = False
    """ A part of it did not leave, so that the others should come back. """
    is_wished_away: bool = False
    """ A person wants it away. """
    weight: float = 1.0
    """ The part of the time that it is due on the card, of that which all tenants are due. """
    clock: float = 0.0
    """ How much it has had of what it is due; who has had the least comes back first. -inf: as much as that one. """
    change_seconds: float = 0.0
    """ How long it takes to leave and to come back. """
    refused_until: float = float("-inf")
    """ It has refused to leave, and is not asked again before this time. """
    again_for_hp: float = float("inf")
    """ Its reason may pass soon: hp that waits has it asked again before that, from this time on; infinity: not so. """
    charged: Mapping[str, int] = field(default_factory=dict)
    """ What its leaving takes of host memory, by the cgroup or node that is charged; empty: not known, or nothing. """

    @property
    def part(self) -> float:
        """The part of the time that it is due, of that which all are due; more than 0."""
        return max(self.weight, _LEAST_WEIGHT)

    @property
    def has_clock(self) -> bool:
        """Whether it is known how much it has had of what it is due."""
        return self.clock > -math.inf

    def clock_after(self, seconds: float) -> float:
        """Return its clock when it has been here for so long while others waited."""
        return self.clock + seconds / self.part

    def seconds_until(self, clock: float) -> float:
        """Return how long it has to be here until its clock says so."""
        return (clock - self.clock) * self.part

    @property
    def takes_turns(self) -> bool:
        """Whether it leaves for others when their turn comes, or waits for its own."""
        return not self.is_wished_away and (self.place is not Place.HERE or (self.parks and not self.is_hp))

    def needs(self, gpu: str) -> int:
        """Return what it may need of a GPU while it is here."""
        return max(self.held.get(gpu, 0), self.wants.get(gpu, 0))

    def frees(self, gpu: str) -> int:
        """Return what becomes free on a GPU when it leaves."""
        return self.held.get(gpu, 0) - self.lacks.get(gpu, 0)

    @cached_property
    def gpus(self) -> frozenset[str]:
        """The GPUs that it uses."""
        return frozenset(self.held) | frozenset(self.wants)

    @property
    def total(self) -> int:
        """What it holds on all GPUs: about what it costs to move it."""
        return sum(self.held.values())


@dataclass(frozen=True)
class View:
    """All GPUs and tenants at one moment."""

    now: float
    cards: Mapping[str, Room]
    """ By GPU. """
    tenants: tuple[Tenant, ...]
    stay_factor: float = 20.0
    """ A tenant stays at least so many times as long as a change takes. """
    margin_part: float = 0.0
    """ What must be free besides, as a part of what comes back. """
    host: Mapping[str, int] = field(default_factory=dict)
    """ What the cgroups and the node that tenants would be charged to have left. """

    def stay_seconds(self, tenant: Tenant) -> float:
        """Return for how long a tenant stays at least."""
        return self.stay_factor * tenant.change_seconds

    def lacks_host_memory(self, tenant: Tenant) -> list[str]:
        """Return the cgroups that cannot hold what a tenant has on the GPUs, even if no other one leaves."""
        return [place for place, size in tenant.charged.items() if size > self.host[place]]


@dataclass(frozen=True)
class Wishes:
    """What shall change."""

    leave: tuple[str, ...] = ()
    """ The tenants that shall leave, by name. """
    back: tuple[str, ...] = ()
    """ The tenants that may come back. """
    helpless: frozenset[str] = field(default_factory=frozenset)
    """ The tenants whose allocations can never find room. """
    hopeless: frozenset[str] = field(default_factory=frozenset)
    """ The GPUs on which nobody can make the room that hp waits for. """
    unpayable: frozenset[str] = field(default_factory=frozenset)
    """ Those on which nobody can make the room that is owed. """
    stuck: frozenset[str] = field(default_factory=frozenset)
    """ The tenants that are away and find no room, although no hp needs it: others keep it that do not leave. """
