"""Applies the holders' grants to the pages: each slot's limits and request, and each GPU's policy.

The slot decides the role (hp or be), even if the grant names another one. If a grant cannot be read, the last
readable one of the same pod stays valid, and a problem is reported. If several hp pods request policies for one GPU,
the oldest pod decides, because a new pod must not change the policy of a running pod. The agent reports the conflict
with the other pods' names. If no hp pod requests a policy, the node's default applies.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

from orion.crds.grant import ContainerGrant, PodGrant
from orion.crds.policy import Priority
from orion.errors import Unreadable
from orion.hook import layout
from orion.node_agent.cluster.holders.granted_policy import as_page
from orion.node_agent.cluster.holders.identity import ResolvedHolder
from orion.node_agent.cluster.holders.remembering import RememberedHolder
from orion.node_agent.cluster.pod_resources import SlotKey
from orion.node_agent.cluster.state import Asking, HolderState, PolicyState, Problem
from orion.node_agent.pages.pages import printable
from orion.node_agent.pages.policy_words import Policy
from orion.node_agent.sharing.served import ServedGpu, ServesGpus
from orion.node_agent.slots.claim import Claim
from orion.node_agent.slots.slot import Slot

_MESSAGE_MAX = 240


@dataclass(frozen=True)
class _GrantedHolder:
    """A slot's holder, and the grant that was applied to the slot."""

    slot: Slot
    resolved: ResolvedHolder
    grant: PodGrant | None
    text: str | None
    """ The grant's JSON, as last read successfully. """
    row: HolderState


class GrantsSlots(ServesGpus, Protocol):
    """What `Grants` needs from an agent."""

    def gpu(self, uuid: str) -> ServedGpu:
        """Return one GPU."""

    def prepare_slot(self, uuid: str, name: str) -> Slot:
        """Reset a slot for another container."""

    def set_grant(
        self,
        uuid: str,
        name: str,
        memory_limit_bytes: int | None = None,
        request_milli: int | None = None,
        limit_milli: int | None = None,
    ) -> Slot:
        """Change a slot's grant; None leaves a value unchanged."""

    def save(self, gpu: ServedGpu) -> None:
        """Write the state file after a change of a GPU."""


class Grants:
    """The grants of one agent's slots.

    Scrapes read the mappings in their own thread, so a mapping is replaced and never changed.

    Args:
        agent: the agent.
        started: which pods the previous agent allowed to start.
    """

    def __init__(self, agent: GrantsSlots, started: Mapping[SlotKey, str] = MappingProxyType({})) -> None:
        self._agent = agent
        self.started: Mapping[SlotKey, str] = dict(started)
        """ By hp slot, the uid of the pod that was last allowed to start in it. """
        self._granted: Mapping[SlotKey, _GrantedHolder] = {}
        self._policies: Mapping[str, PolicyState] = {}
        self.operator_away = ""
        """ Why no replica of the operator has answered for a while; empty: one has. """

    def held(self, uuid: str) -> list[HolderState]:
        """Return the slots of a GPU whose holder is known.

        A container with several of them never starts (`device_plugin/allocating.py`), so it reserves no memory.
        """
        granted = [each for (gpu, _), each in self._granted.items() if gpu == uuid]
        slots = Counter(each.row.holder for each in granted if each.resolved.claim is None)
        return [
            replace(each.row, memory_request_bytes=0) if slots[each.row.holder] > 1 else each.row for each in granted
        ]

    def starts(self, slot: SlotKey, uid: str) -> None:
        """Note that a pod is allowed to start in a slot, also for the next agent."""
        self.started = {**self.started, slot: uid}
        if (granted := self._granted.get(slot)) is not None:
            self._remember_holder(slot, granted)

    def of(self, slot: SlotKey) -> HolderState | None:
        """Return what was granted to a slot's holder; None: no holder is known."""
        granted = self._granted.get(slot)
        return None if granted is None else granted.row

    def policy(self, uuid: str) -> PolicyState:
        """Return a GPU's policy and who decided it."""
        state = self._policies.get(uuid, PolicyState(self._agent.gpu(uuid).shared_gpu.policy))
        return replace(state, policy=self._agent.gpu(uuid).shared_gpu.policy)

    def apply(self, holders: Mapping[SlotKey, ResolvedHolder], beginning: frozenset[SlotKey], certain: bool) -> bool:
        """Apply the grants of all holders to the pages; return whether anything changed.

        Args:
            holders: who holds each slot.
            beginning: slots in which a container starts whose pod is not known yet; these slots were reset already.
            certain: whether every slot without an entry in `holders` is free; false if some holders may be unknown.
        """
        before = (self._granted, self._policies)
        for key in self._granted.keys() - holders.keys():
            self._let_go(key, ready=key in beginning)
        for key, resolved in holders.items():
            self._apply(key, resolved)
        for uuid in self._agent.gpus:
            self._decide(uuid, certain)
        return before != (self._granted, self._policies)

    # -- Slots ---------------------------------------------------------------------------------------------------------

    def _let_go(self, key: SlotKey, ready: bool) -> None:
        granted = self._granted[key]
        self._granted = {each: other for each, other in self._granted.items() if each != key}
        served = self._agent.gpus.get(key[0])
        if served is None or served.shared_gpu.slots.get(key[1]) is not granted.slot:
            return
        if not ready:
            self._agent.prepare_slot(*key)
        granted.slot.holder = ""
        self._remember(granted.slot, "")

    def _apply(self, key: SlotKey, resolved: ResolvedHolder) -> None:
        served = self._agent.gpus.get(key[0])
        slot = None if served is None else served.shared_gpu.slots.get(key[1])
        before = self._granted.get(key)
        if served is None or slot is None:
            return
        if before is not None and before.slot is slot and before.resolved == resolved:
            return
        grant, text, problems = _read(resolved, before)
        if (
            before is None
            or before.grant != grant
            or before.slot is not slot
            or before.resolved.holder != resolved.holder
            or before.resolved.claim != resolved.claim
        ):
            limits = _of_container(grant, resolved)
            time = _request(slot, limits), limits.compute_limit_milli or 0
            self._agent.set_grant(*key, limits.memory_limit_bytes or 0, *time)
        if grant is not None and grant.priority != Priority(slot.role.name.lower()):
            problems = (*problems, _role_differs(slot, resolved, grant))
        if resolved.others:
            problems = (_held_twice(key, resolved), *problems)
        granted = _GrantedHolder(slot, resolved, grant, text, _row(key, slot, resolved, grant, problems))
        self._granted = {**self._granted, key: granted}
        served.joining.held_by(slot, resolved.holder.name)
        self._remember_holder(key, granted)

    def _remember_holder(self, key: SlotKey, granted: _GrantedHolder) -> None:
        started = self.started.get(key) == granted.resolved.holder.uid
        self._remember(granted.slot, RememberedHolder.of(granted.resolved, granted.text, started).model_dump_json())

    def _remember(self, slot: Slot, text: str) -> None:
        """Save a slot's holder for the next agent."""
        if slot.holder_text != text:
            slot.holder_text = text
            self._agent.save(self._agent.gpu(slot.gpu))

    # -- Policies ------------------------------------------------------------------------------------------------------

    def _decide(self, uuid: str, certain: bool) -> None:
        served = self._agent.gpus[uuid]
        shared_gpu = served.shared_gpu
        asking = [
            (granted.resolved.created, Asking(granted.resolved.holder, key[1], _share(granted), granted.grant.policy))
            for key, granted in self._granted.items()
            if key[0] == uuid
            and granted.slot.role is layout.Role.HP
            and granted.grant is not None
            and granted.grant.policy is not None
        ]
        deciding, conflicting = decide(asking, shared_gpu.default_policy)
        policy = None if deciding is None else as_page(deciding.policy, shared_gpu.default_policy)
        share = "" if deciding is None else deciding.share
        if (deciding is not None or certain) and served.decide_policy(policy, share):
            self._agent.save(served)
        self._policies = {**self._policies, uuid: PolicyState(shared_gpu.policy, deciding, conflicting)}
        served.conditions.reported = self._sentences(uuid, deciding, conflicting)

    def _sentences(self, uuid: str, deciding: Asking | None, conflicting: tuple[Asking, ...]) -> dict[str, str]:
        """Return the problems for the GPU's conditions: one sentence for each reason."""
        found: dict[str, str] = {}
        for slot in self.held(uuid):
            for problem in slot.problems:
                found.setdefault(problem.reason, problem.message)
        if deciding is not None and conflicting:
            others = ", ".join(f"{each.holder.name} ({each.share})" for each in conflicting)
            found["PolicyConflict"] = _sentence(
                f"GPUShare {deciding.share} of {deciding.holder.name}, the oldest hp pod, decides the policy; these "
                f"request another one: {others}"
            )
        if self.operator_away:
            found["OperatorAway"] = _sentence(
                "pods keep their grants, and a new pod has none, because no replica of the operator answers: "
                f"{self.operator_away}"
            )
        return found


def decide(asking: Iterable[tuple[str, Asking]], default: Policy) -> tuple[Asking | None, tuple[Asking, ...]]:
    """Return the pod that decides a GPU's policy, and the pods that request another policy, oldest first.

    Args:
        asking: hp pods that request a policy, each with its creation time.
        default: applies to options that a GPUShare does not set.
    """
    by_age = [each for _, each in sorted(asking, key=lambda pair: (pair[0], pair[1].holder.uid, pair[1].slot))]
    if not by_age:
        return None, ()
    policy = as_page(by_age[0].policy, default)
    return by_age[0], tuple(each for each in by_age[1:] if as_page(each.policy, default) != policy)


def _read(
    resolved: ResolvedHolder, before: _GrantedHolder | None
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
        message = _sentence(f"{resolved.holder.name} has a grant that cannot be read, so {effect}: {error}")
        return grant, text, (Problem("GrantUnreadable", message),)


def _of_container(grant: PodGrant | None, resolved: ResolvedHolder) -> ContainerGrant:
    if resolved.claim is not None:
        return _of_claim(grant, resolved.claim)
    return (grant and grant.containers.get(resolved.holder.container)) or ContainerGrant()


def _of_claim(grant: PodGrant | None, claim: Claim) -> ContainerGrant:
    """Return what a claim's slot may use.

    The scheduler has accounted for the claim's amounts, so they apply whatever the grant requests. The limits are those
    of the grant: of the only container in it, as a claim does not say which containers use it. Without a limit of the
    grant, a claim may use the memory that it reserves.
    """
    containers = list(grant.containers.values()) if grant is not None else []
    limits = containers[0] if len(containers) == 1 else ContainerGrant()
    return limits.model_copy(
        update={
            "memory_limit_bytes": limits.memory_limit_bytes or claim.memory_bytes or None,
            "memory_request_bytes": claim.memory_bytes or None,
            "compute_request_milli": claim.time_milli or None,
        }
    )


def _request(slot: Slot, limits: ContainerGrant) -> int:
    """Return a be slot's request. The request of hp is a part of the GPU's policy, so an hp slot has none."""
    return limits.compute_request_milli or 0 if slot.role is layout.Role.BE else 0


def _share(granted: _GrantedHolder) -> str:
    return f"{granted.resolved.holder.namespace}/{granted.grant.share if granted.grant else ''}"


def _row(
    key: SlotKey, slot: Slot, resolved: ResolvedHolder, grant: PodGrant | None, problems: tuple[Problem, ...]
) -> HolderState:
    limits = _of_container(grant, resolved)
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
        request_milli=_request(slot, limits),
        limit_milli=limits.compute_limit_milli or 0,
        fail_closed=grant is not None and grant.fail_closed,
        problems=problems,
    )


def _role_differs(slot: Slot, resolved: ResolvedHolder, grant: PodGrant) -> Problem:
    role = slot.role.name.lower()
    return Problem(
        "RoleDiffers",
        _sentence(
            f"the grant of {resolved.holder.name} says {grant.priority.value}, but its slot {slot.name} is for {role}: "
            f"{role} applies"
        ),
    )


def _held_twice(key: SlotKey, resolved: ResolvedHolder) -> Problem:
    holder, others = resolved.holder.name, ", ".join(resolved.others)
    sentence = f"the kubelet gives {key[1]} to {holder}, which holds it, and also to {others}"
    return Problem("SlotHeldTwice", _sentence(f"{sentence}: these pods share the slot's limits; delete all but one"))


def _sentence(text: str) -> str:
    return printable(text.encode("ascii", "replace"), _MESSAGE_MAX)
