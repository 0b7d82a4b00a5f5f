"""Rolling updates of hp on this node: which GPU offers one hp slot more, and which pods may start in it.

The operator names the new revision of a workload, and the scheduler sends no other hp pod meanwhile. But a pod may name
its node, and so pass the scheduler by. So the agent also looks at each container that starts in an hp slot: if the GPU
already has as many hp pods as it may have, the pod must be of another revision of the workload of one of them.
"""

from typing import Protocol

from orion.crds.workloads import NO_REVISION, Revision
from orion.errors import Conflict
from orion.hook import layout
from orion.node_agent.advertising.advertising import Advertising
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.cluster.holders.grants import Grants
from orion.node_agent.cluster.holders.identity import Identity
from orion.node_agent.cluster.holders.pods import Pods
from orion.node_agent.cluster.holders.resolving import ResolvedHolder
from orion.node_agent.cluster.pod_resources import SlotKey, role_of
from orion.node_agent.gpus.usage import MemoryUsage
from orion.node_agent.parking.member import held
from orion.node_agent.sharing.served import ServesGpus


class AdvertisesGpus(ServesGpus, Protocol):
    """What `Rollouts` needs from an agent."""

    @property
    def advertising(self) -> Advertising:
        """The agent's `Advertising`, which knows how many pods may hold hp slots of a GPU."""

    @property
    def usage(self) -> MemoryUsage:
        """How much memory of each GPU is used."""


class Rollouts:
    """The rolling updates of one node.

    Args:
        pods: the pods of this node, and the revision for which it should offer a slot.
        identity: knows who holds which slot.
        grants: what the holders may do, and which of them were allowed to start.
        agent: the agent.
    """

    def __init__(self, pods: Pods, identity: Identity, grants: Grants, agent: AdvertisesGpus) -> None:
        self._pods, self._identity, self._grants, self._agent = pods, identity, grants, agent
        self._choice: tuple[Revision, str | None] = NO_REVISION, None
        """ For which revision which GPU was chosen last. It stays chosen, although the free memory changes. """

    def needs_slot(self, uuid: str) -> bool:
        """Return whether a GPU should offer one hp slot more: at most one GPU of the node should."""
        return bool(self._pods.rollout.workload) and uuid == self._chosen(self._pods.rollout)

    def check(self, slot: SlotKey) -> None:
        """Check that the pod that starts in a slot may be there. Every be pod may, and every pod that starts again.

        Args:
            slot: the slot.

        Raises:
            Conflict: the GPU has an hp pod of another workload, or the pod is not known yet.
        """
        if role_of(slot[1]) is layout.Role.BE:
            return
        holder = self._identity.holders.get(slot)
        uid = holder.holder.uid if holder is not None else ""
        others = [each for key, each in self._hp(slot[0]).items() if key != slot]
        is_full = len(others) >= self._agent.advertising.slots.count_hp(slot[0])
        if is_full and (holder is None or not uid):
            raise Conflict(f"GPU {slot[0]} has all the hp pods that it may have, and this pod is not known yet")
        starts_again = self._grants.started.get(slot) == uid
        if is_full and holder is not None and not starts_again and not self._replaces_one(holder, others):
            names = ", ".join(sorted(each.holder.name for each in others))
            raise Conflict(
                f"GPU {slot[0]} has all the hp pods that it may have ({names}), and {holder.holder.name} replaces "
                "none of them; delete the pod, so that it is scheduled to a free slot"
            )
        self._grants.starts(slot, uid)

    def _chosen(self, rollout: Revision) -> str | None:
        """Return the GPU with an old pod, and no new one yet, that has the most memory left; None: there is none.

        The operator has compared the pod's memory with that of the same GPU (`rollout_labels.py`).
        """
        full = {}
        for uuid in self._agent.gpus:
            holders, count = self._hp(uuid), self._agent.advertising.slots.count_hp(uuid)
            verdict = self._agent.advertising.verdict(uuid)
            is_whole = verdict.healthy and not verdict.cordoned
            is_old = any(rollout.replaces(self._revision(each)) for each in holders.values())
            if is_whole and is_old and len(holders) == count:
                shared_gpu = self._agent.gpus[uuid].shared_gpu
                reserved = sum(row.memory_request_bytes for row in self._grants.held(uuid))
                used = self._agent.usage.known(shared_gpu.gpu) - _returnable(shared_gpu)
                full[uuid] = shared_gpu.gpu.memory_bytes - max(reserved, used)
        revision, chosen = self._choice
        if revision != rollout or chosen not in full:
            chosen = max(sorted(full), key=lambda uuid: full[uuid], default=None)
            self._choice = rollout, chosen
        return chosen

    def _hp(self, uuid: str) -> dict[SlotKey, ResolvedHolder]:
        holders = self._identity.holders
        return {key: each for key, each in holders.items() if key[0] == uuid and role_of(key[1]) is layout.Role.HP}

    def _replaces_one(self, holder: ResolvedHolder, others: list[ResolvedHolder]) -> bool:
        return any(self._revision(holder).replaces(self._revision(each)) for each in others)

    def _revision(self, holder: ResolvedHolder) -> Revision:
        pod = self._pods.known.get(holder.key)
        return pod.revision if pod is not None and pod.uid == holder.holder.uid else NO_REVISION


def _returnable(shared_gpu: SharedGpu) -> int:
    """Return what slots have beyond their requests and give back when others need it, in bytes.

    Those that move or are away count as they are, and those that have refused to leave give nothing back.
    """
    returnable = 0
    for slot in shared_gpu.slots.values():
        sharing = slot.memory_sharing
        if sharing.parks and sharing.request_bytes and not slot.parking.state:
            returnable += max(0, sum(map(held, shared_gpu.of_slot(slot))) - sharing.request_bytes)
    return returnable
