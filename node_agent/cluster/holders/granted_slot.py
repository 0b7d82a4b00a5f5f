"""What a slot gets by the grant of its holder, and what is wrong with that grant: pure functions.

The slot decides the role (hp or be), even if the grant names another one. If a grant cannot be read, the last readable
one of the same pod stays valid, and a problem is reported.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from orion.crds.grant import ContainerGrant, PodGrant
from orion.crds.policy import Priority
from orion.crds.quantities import Memory
from orion.errors import Unreadable
from orion.hook import layout
from orion.node_agent.cluster.holders.resolving import ResolvedHolder
from orion.node_agent.cluster.pod_resources import SlotKey
from orion.node_agent.cluster.state import HolderState, Problem
from orion.node_agent.pages.client_pages import printable
from orion.node_agent.slots.claim import Claim
from orion.node_agent.slots.memory_sharing import MemorySharing
from orion.node_agent.slots.slot import Slot

_MESSAGE_MAX = 240


@dataclass(frozen=True)
class GrantedHolder:
    """A slot's holder, and the grant that was applied to the slot."""

    slot: Slot
    resolved: ResolvedHolder
    grant: PodGrant | None
    text: str | None
    """ The grant's JSON, as last read successfully. """
    row: HolderState


def read_grant(
    resolved: ResolvedHolder, before: GrantedHolder | None
) -> tuple[PodGrant | None, str | None, tuple[Problem, ...]]:
    """Return the valid grant, its text, and what is wrong with the text."""
    if resolved.grant is None:
        return None, None, ()
    try:
        return PodGrant.from_json(resolved.grant), resolved.grant, ()
    except Unreadable as error:
        same = before is not None and before.resolved.holder.uid == resolved.holder.uid
        grant, text = (before.grant, before.text) if before is not None and same else (None, None)
        effect = "its last one stays valid" if grant is not None else "the default applies"
        message = sentence(f"{resolved.holder.name} has a grant that cannot be read, so {effect}: {error}")
        return grant, text, (Problem("GrantUnreadable", message),)


def limits_of(grant: PodGrant | None, resolved: ResolvedHolder) -> ContainerGrant:
    """Return what the holder's container may use, or the pods of its claim."""
    if resolved.claim is not None:
        return _of_claim(grant, resolved.claim)
    return (grant and grant.containers.get(resolved.holder.container)) or ContainerGrant()


def _of_claim(grant: PodGrant | None, claim: Claim) -> ContainerGrant:
    """Return what a claim's slot may use.

    The scheduler has accounted for the claim's amounts, so they apply whatever the grant requests. The limits are those
    of the grant, whose containers differ only in their number of slots. If no GPUShare governs the pod, a claim may use
    the memory that it reserves.
    """
    limits = next(iter(grant.containers.values()), ContainerGrant()) if grant is not None else ContainerGrant()
    own_limit = None if grant is not None and grant.share is not None else claim.memory_bytes or None
    return limits.model_copy(
        update={
            "memory_limit_bytes": limits.memory_limit_bytes or own_limit,
            "memory_request_bytes": claim.memory_bytes or None,
            "compute_request_milli": claim.time_milli or None,
        }
    )


def request_of(slot: Slot, limits: ContainerGrant) -> int:
    """Return a be slot's request. The request of hp is a part of the GPU's policy, so an hp slot has none."""
    return limits.compute_request_milli or 0 if slot.role is layout.Role.BE else 0


def sharing_of(slot: Slot, limits: ContainerGrant) -> MemorySharing:
    """Return how a slot shares memory: be may make room, and hp may wait for it."""
    is_be = slot.role is layout.Role.BE
    return MemorySharing(
        limits.memory_request_bytes or 0,
        is_be and bool(limits.memory_parks),
        is_be and bool(limits.memory_unified),
        0 if is_be else limits.memory_wait_ms or 0,
        bool(limits.memory_evict_unparked),
    )


def row_of(
    key: SlotKey, slot: Slot, resolved: ResolvedHolder, grant: PodGrant | None, problems: tuple[Problem, ...]
) -> HolderState:
    """Return what the agent reports of a slot and its holder."""
    limits = limits_of(grant, resolved)
    return HolderState(
        gpu=key[0],
        name=key[1],
        priority=Priority(slot.role.name.lower()),
        holder=resolved.holder,
        share=grant.share if grant else None,
        share_uid=grant.share_uid if grant else None,
        generation=grant.share_generation if grant else None,
        memory_limit_bytes=limits.memory_limit_bytes or 0,
        memory_request_bytes=limits.memory_request_bytes or limits.memory_limit_bytes or 0,
        request_milli=request_of(slot, limits),
        reserved_milli=resolved.claim.time_milli if resolved.claim else request_of(slot, limits),
        limit_milli=limits.compute_limit_milli or 0,
        fail_closed=None if grant is None else grant.fail_closed,
        problems=problems,
        claim=resolved.claim.name if resolved.claim else "",
        sharing=resolved.sharing,
    )


def claim_reserves_less(resolved: ResolvedHolder, grant: PodGrant | None) -> Iterator[Problem]:
    """Yield the problem that a pod's GPUShare asks for more than its claim reserves: a claim cannot be changed."""
    if resolved.claim is None or grant is None:
        return
    asked = next(iter(grant.containers.values()), ContainerGrant())
    memory, has = asked.memory_request_bytes or asked.memory_limit_bytes or 0, resolved.claim.memory_bytes
    time, has_time = asked.compute_request_milli or 0, resolved.claim.time_milli
    both = ((memory > has, f"memory {Memory.of_bytes(memory)}", f"{Memory.of_bytes(has)}"),
            (time > has_time, f"time {time / 1000:g}", f"{has_time / 1000:g}"))  # fmt: skip
    found = [f"for {wanted}, where its claim reserves {reserved}" for more, wanted, reserved in both if more]
    if found:
        text = f"the GPUShare of {resolved.holder.name} now asks {' and '.join(found)}"
        yield Problem(
            "ClaimReservesLess",
            sentence(f"{text}: other pods may get the difference; delete the pod so that it gets a new claim"),
        )


def role_differs(slot: Slot, resolved: ResolvedHolder, grant: PodGrant) -> Problem:
    """Return the problem that the grant names another role than the slot has."""
    role = slot.role.name.lower()
    return Problem(
        "RoleDiffers",
        sentence(
            f"the grant of {resolved.holder.name} says {grant.priority.value}, but its slot {slot.name} is for {role}: "
            f"{role} applies"
        ),
    )


def held_twice(key: SlotKey, resolved: ResolvedHolder) -> Problem:
    """Return the problem that several living pods have the slot."""
    holder, others = resolved.holder.name, ", ".join(resolved.others)
    text = f"the kubelet gives {key[1]} to {holder}, which holds it, and also to {others}"
    return Problem("SlotHeldTwice", sentence(f"{text}: these pods share the slot's limits; delete all but one"))


def sentence(text: str) -> str:
    """Return a text for people, printable and not too long."""
    return printable(text.encode("ascii", "replace"), _MESSAGE_MAX)
