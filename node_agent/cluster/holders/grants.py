"""Applies the holders' grants to the pages: each slot's limits and request (granted_slot.py), and each GPU's policy.

If several hp pods request policies for one GPU, the oldest pod decides, because a new pod must not change the policy of
a running pod. The agent reports the conflict with the other pods' names. If no hp pod requests a policy, the node's
default applies.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from orion.crds.policy import Priority
from orion.hook import layout
from orion.node_agent.cluster.holders.granted_policy import as_page
from orion.node_agent.cluster.holders.granted_slot import (
    GrantedHolder,
    claim_reserves_less,
    held_twice,
    limits_of,
    read_grant,
    request_of,
    role_differs,
    row_of,
    sentence,
    sharing_of,
)
from orion.node_agent.cluster.holders.remembering import RememberedHolder
from orion.node_agent.cluster.holders.resolving import ResolvedHolder
from orion.node_agent.cluster.pod_resources import SlotKey
from orion.node_agent.cluster.state import Asking, HolderState, PolicyState
from orion.node_agent.pages.policy_words import Policy
from orion.node_agent.sharing.served import ServedGpu, ServesGpus
from orion.node_agent.sharing.slot_operations import SlotOperations
from orion.node_agent.slots.holders import Holder
from orion.node_agent.slots.slot import Slot


class GrantsSlots(ServesGpus, Protocol):
    """What `Grants` needs from an agent."""

    def gpu(self, uuid: str) -> ServedGpu:
        """Return one GPU."""

    @property
    def slots(self) -> SlotOperations:
        """The operations on slots."""

    def save(self, gpu: ServedGpu) -> None:
        """Write the state file after a change of a GPU."""


class Grants:
    """The grants of one agent's slots.

    Scrapes read the mappings in their own thread, so a mapping is replaced and never changed.

    Args:
        agent: the agent.
        started: which pods the previous agent allowed to start.
        remembered: the holders that the previous agent saved.
    """

    def __init__(
        self,
        agent: GrantsSlots,
        started: Mapping[SlotKey, str] = MappingProxyType({}),
        remembered: Mapping[SlotKey, Holder] = MappingProxyType({}),
    ) -> None:
        self._agent, self._remembered = agent, dict(remembered)
        self.started: Mapping[SlotKey, str] = dict(started)
        """ By hp slot, the uid of the pod that was last allowed to start in it. """
        self._granted: Mapping[SlotKey, GrantedHolder] = {}
        self._debtors: dict[SlotKey, str] = {}
        """ By slot in which a container starts, the uid of the pod that held it: the slot's debt is that pod's. """
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
        self._debtors[key] = granted.resolved.holder.uid if ready else ""
        self._granted = {each: other for each, other in self._granted.items() if each != key}
        served = self._agent.gpus.get(key[0])
        if served is None or served.shared_gpu.slots.get(key[1]) is not granted.slot:
            return
        if not ready:
            self._agent.slots.prepare(*key)
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
        grant, text, problems = read_grant(resolved, before)
        if (
            before is None
            or before.grant != grant
            or before.slot is not slot
            or before.resolved.holder != resolved.holder
            or before.resolved.claim != resolved.claim
        ):
            limits = limits_of(grant, resolved)
            time = request_of(slot, limits), limits.compute_limit_milli or 0
            # Another container may have got the slot meanwhile, which must not know the limit of this one.
            is_remembered = before is None and self._remembered.pop(key, None) == resolved.holder
            limit_bytes, sharing = limits.memory_limit_bytes or 0, sharing_of(slot, limits)
            self._agent.slots.set_grant(*key, limit_bytes, *time, sharing, known_again=not is_remembered)
        if grant is not None and grant.priority != Priority(slot.role.name.lower()):
            problems = (*problems, role_differs(slot, resolved, grant))
        problems = (*problems, *claim_reserves_less(resolved, grant))
        if resolved.others:
            problems = (held_twice(key, resolved), *problems)
        granted = GrantedHolder(slot, resolved, grant, text, row_of(key, slot, resolved, grant, problems))
        self._granted = {**self._granted, key: granted}
        served.joining.held_by(slot, resolved.holder.name)
        if uid := resolved.holder.uid:
            if self._debtors.pop(key, "") == uid and slot.debt_ns:
                served.turns.owe(slot.name, slot.debt_ns)
            slot.debt_ns = 0.0
        self._remember_holder(key, granted)

    def _remember_holder(self, key: SlotKey, granted: GrantedHolder) -> None:
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
            found["PolicyConflict"] = sentence(
                f"GPUShare {deciding.share} of {deciding.holder.name}, the oldest hp pod, decides the policy; these "
                f"request another one: {others}"
            )
        if self.operator_away:
            found["OperatorAway"] = sentence(
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


def _share(granted: GrantedHolder) -> str:
    return f"{granted.resolved.holder.namespace}/{granted.grant.share if granted.grant else ''}"
