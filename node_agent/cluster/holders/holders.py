"""Combines identity (who holds which slot) and grants (what the holders may do) for the rest of the agent.

Each change of one of them updates both in one step on the event loop. So no reader sees a slot with one pod's name and
another pod's grant.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from orion.crds.policy import Priority
from orion.errors import Conflict
from orion.hook import layout
from orion.node_agent.cluster.holders import grants
from orion.node_agent.cluster.holders.claimed import claimed, containers, other_users
from orion.node_agent.cluster.holders.identity import Identity
from orion.node_agent.cluster.holders.operator_link import OperatorLink
from orion.node_agent.cluster.holders.pods import Pods
from orion.node_agent.cluster.holders.remembering import remembered
from orion.node_agent.cluster.holders.rollouts import AdvertisesGpus, Rollouts
from orion.node_agent.cluster.pod_resources import PodResources, SlotKey, role_of
from orion.node_agent.cluster.state import GpuState, HolderState
from orion.node_agent.slots.holders import Holder, Prepared
from orion.node_agent.slots.slot import Slot

_log = logging.getLogger(__name__)

_PREPARE_SECONDS = 1.0
""" The maximum time that `prepared` waits. The kubelet delays the container's start for this time. """


class AdvertisesSlots(grants.GrantsSlots, AdvertisesGpus, Protocol):
    """What `ClusterHolders` needs from an agent. Its `advertising` must be notified of changes."""


class ClusterHolders:
    """Implements `Holders` for the agent, and `ClusterState` for reporting.

    Args:
        agent: the agent that serves the slots.
        operator: the connection to the operator.
        resources: the kubelet.
    """

    def __init__(self, agent: AdvertisesSlots, operator: OperatorLink, resources: PodResources) -> None:
        self._agent, self._operator = agent, operator
        self._listeners: list[Callable[[], None]] = []
        before = remembered(agent.gpus)
        last = {each.uid: each.grant for each in before.values() if each.grant}
        self.pods = Pods(operator, last, self._pods_changed)
        holders = {slot: each.as_resolved() for slot, each in before.items()}
        self.grants = grants.Grants(
            agent,
            {slot: each.uid for slot, each in before.items() if each.started},
            {slot: each.holder for slot, each in holders.items()},
        )
        self.identity = Identity(
            self.pods,
            resources,
            holders,
            self._update,
            lambda: claimed(agent.gpus),
        )
        self._rollouts = Rollouts(self.pods, self.identity, self.grants, agent)

    def start(self) -> None:
        """Apply what the previous agent saved."""
        self._agent.advertising.slots.successor = self._rollouts.needs_slot
        self.identity.claims_changed()  # the claims have the limits of their slots

    async def run(self) -> None:
        """Keep pods and identity current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.pods.run())
            tasks.create_task(self.identity.run())

    # -- Holders -------------------------------------------------------------------------------------------------------

    async def prepared(self, slot: Slot) -> Prepared:
        """Find out whose container starts in a slot that was just reset, and apply that pod's grant.

        Returns within a second. If the pod is not known by then, the default grant applies until it is.

        Raises:
            Conflict: the pod is static, or its share cannot govern it and it never had a grant of it here, or the slot
                is for the successor of another pod.
        """
        key = (slot.gpu, slot.name)
        self.identity.begins(key)
        self._update()
        try:
            async with asyncio.timeout(_PREPARE_SECONDS):
                await self.identity.known(key)
        except TimeoutError:
            _log.warning("slot: %s %s: the pod that starts in it is not known yet", *key)
        self._refuse_pod(key)
        self._rollouts.check(key)
        row = self.grants.of(key)
        # If the holder has no uid, only the kubelet has named the pod, and its grant is not known.
        if row is None or row.holder is None or not row.holder.uid:
            return Prepared()
        return Prepared(row.holder.name, bool(row.fail_closed))

    def _refuse_pod(self, key: SlotKey) -> None:
        holder = self.identity.holders.get(key)
        pod = self.pods.known.get(holder.key) if holder else None
        if pod is None:
            return
        if pod.is_static:
            raise Conflict(
                f"the static pod {pod.namespace}/{pod.name} cannot share GPUs: the kubelet takes it from a file of the "
                "node, so it has not been through Orion's webhook and lacks the hook; remove the file, and run the pod "
                "by a DaemonSet or a Deployment"
            )
        if pod.kept and not pod.grant:
            raise Conflict(
                f"pod {pod.namespace}/{pod.name} may not start without a grant, and had none on this node: {pod.kept}. "
                "If the GPUShare was deleted, create it again, or create the pod again"
            )

    async def missed(self) -> None:
        """Ask the kubelet again who holds which slot, and open the held slots. Returns within a second."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PREPARE_SECONDS):
                await self.identity.answered()

    async def granted(self, slot: Slot) -> None:
        """Wait until the operator has named a pod of the claim that has a slot. Returns within a second."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PREPARE_SECONDS):
                await self.identity.claim_known((slot.gpu, slot.name))

    def claims_changed(self) -> None:
        """Take over which claims hold slots now, and write their grants into the pages."""
        self.identity.claims_changed()

    def holds(self, slot: Slot) -> bool:
        """Return whether a container holds the slot or starts in it, or a process of this machine owns it."""
        key = (slot.gpu, slot.name)
        return key in self.identity.holders or key in self.identity.beginning or slot.owner is not None

    def held(self, gpu: str) -> Mapping[str, layout.Role]:
        """Return the slots of a GPU that containers hold, by name; some of them may not be open."""
        return {name: role_of(name) for uuid, name in self.identity.holders if uuid == gpu}

    def reserved_bytes(self, gpu: str) -> int:
        """Return how much of a GPU's memory the holders of its slots reserve."""
        return sum(row.memory_request_bytes for row in self.grants.held(gpu))

    def fail_closed(self, gpu: str) -> Mapping[str, bool]:
        """Return which pods with a slot of a GPU must not start without the hook, and which may, by uid, sorted."""
        found = {
            row.holder.uid: row.fail_closed
            for row in self.grants.held(gpu)
            if row.holder is not None and row.holder.uid and row.fail_closed is not None
        }
        return dict(sorted(found.items()))

    def other_users(self) -> Mapping[str, tuple[str, ...]]:
        """Return the claims whose pods are others than the driver has named: by uid, the names of their pods."""
        return other_users(claimed(self._agent.gpus), self.identity.users)

    @property
    def certain(self) -> bool:
        """Whether every slot without a known holder is free; false if the agent may not know some holders yet."""
        return self.identity.certain

    def waits_for(self) -> str:
        """Return a sentence that names the one who has not answered yet: kubelet or operator. Empty: both have."""
        if not self.identity.answered_once:
            return "the kubelet has not reported yet which container has which slot"
        why = f": {self._operator.error}" if self._operator.error else ""
        return "" if self.pods.synced else f"the operator has not reported yet which pods are on this node{why}"

    # -- ClusterState --------------------------------------------------------------------------------------------------

    def of(self, uuid: str) -> GpuState:
        """Return one GPU's state.

        Raises:
            NotFound: the agent has no such GPU.
        """
        opened = list(self._agent.gpu(uuid).shared_gpu.slots.values())  # a copy: scrapes call this in their own thread
        slots = [slot for slot in opened if slot.permanent]
        rows = self.grants.held(uuid)
        rows += [HolderState(*key, _priority(key), None) for key in self.identity.beginning if key[0] == uuid]
        return GpuState(
            uuid=uuid,
            slots={
                Priority.HP: self._agent.advertising.slots.count_hp(uuid),
                Priority.BE: sum(slot.role is layout.Role.BE for slot in slots),
            },
            held=tuple(sorted(rows, key=lambda row: row.name)),
            policy=self.grants.policy(uuid),
        )

    def pod(self, uid: str) -> Holder | None:
        """Return a pod of this node by its uid, with an empty container name."""
        return self.pods.of_uid(uid)

    def containers_of_claims(self) -> Mapping[Holder, frozenset[SlotKey]]:
        """Return the containers that use claims, each with the claim's slots."""
        return containers(claimed(self._agent.gpus), self.identity.users)

    def on_change(self, notify: Callable[[], None]) -> None:
        """Call `notify` on the event loop after a change of what `of` returns. One call may cover several changes."""
        self._listeners.append(notify)

    def notify(self) -> None:
        """Tell those who report of a change."""
        for notify in self._listeners:
            notify()

    # -- Changes -------------------------------------------------------------------------------------------------------

    def _pods_changed(self) -> None:
        self.identity.pods_changed()

    def _update(self) -> None:
        """Apply what is known to the pages, and notify the listeners."""
        try:
            self._agent.advertising.look()  # opens held slots that are not open
        except Exception:  # apply the grants of the existing slots anyway
            _log.exception("cluster: the slots could not be checked")
        try:
            self.grants.operator_away = self._operator.away
            changed = self.grants.apply(self.identity.holders, self.identity.beginning, self.identity.certain)
        except Exception:  # an error with one holder must not end the watch for all
            _log.exception("cluster: the holders' grants could not be applied")
            return
        if changed:
            self._agent.advertising.changed()
            self.notify()


def _priority(key: SlotKey) -> Priority:
    return Priority(role_of(key[1]).name.lower())
