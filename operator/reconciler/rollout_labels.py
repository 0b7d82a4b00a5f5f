"""Decides for which workload a node has one hp slot more (docs/rolling-updates.md): the label `orion.gpu/rollout`.

The label has three states. Absent: the node takes any hp pod. The revision of a workload: the agent of the node offers
one hp slot more, and only pods of this revision are scheduled to the node. "ends-" and the revision: the agent offers
no further slot, and the label waits until the kubelet no longer reports one, or for the time in which the node's DRA
driver writes its slice.

A node is open for one new pod at a time, and for a minute at most. So nobody can close a node for others by a new pod
that cannot run there.
"""

from dataclasses import dataclass

from orion.crds.annotations import ROLLOUT, ROLLOUT_ENDS
from orion.crds.policy import Priority
from orion.crds.workloads import Revision
from orion.operator.reconciler.governance import How
from orion.operator.reconciler.records import Complaint, DeviceRecord, NodeRecord, PodRecord
from orion.operator.reconciler.rollouts import ENDS_S, SLICE_S
from orion.operator.reconciler.state import State
from orion.operator.reconciler.usable_gpus import holders, takes_pods

REASON_MEMORY = "RolloutNeedsMemory"
_SOON_S = 1.0


@dataclass(frozen=True)
class RolloutLabel:
    """What a node's label must be.

    Args:
        value: the value; None: the node must not have the label.
        again: look again after this time, in seconds; None: only after a change.
    """

    value: str | None
    again: float | None = None


def rollout_label(state: State, node: NodeRecord, now: float) -> RolloutLabel:
    """Return what a node's label must be. `now`: monotonic, in seconds."""
    label, rollouts = node.labels.get(ROLLOUT, ""), state.rollouts
    if node.rollout.workload:
        pods = [(pod, left) for pod, left in rollouts.expected(node.rollout, node.name, now) if not _holds(state, pod)]
        if pods:
            return RolloutLabel(label, max(left for _, left in pods))
        return RolloutLabel(f"{ROLLOUT_ENDS}{node.rollout}", _SOON_S)
    chosen = _next(state, node, Revision.read(label.removeprefix(ROLLOUT_ENDS)).workload, now)
    if chosen is not None:
        rollouts.ended(node.name)
        rollouts.offer(chosen, node.name, now)
        return RolloutLabel(str(chosen.revision), _SOON_S)
    if label:
        left = _longest_end(state, node) - rollouts.ending(node.name, now)
        if left > 0:
            return RolloutLabel(label, left)
    rollouts.ended(node.name)
    waiting = _waiting(state, node)
    if label or any(state.behind(pod.at.namespace) for pod in waiting):
        return RolloutLabel(None, _SOON_S)
    waits = [rollouts.wait(pod, node.name, now) for pod in waiting]
    return RolloutLabel(None, min((each for each in waits if each), default=None))


def rollout_complaint(state: State, pod: PodRecord) -> Complaint | None:
    """Return why no node can be opened for a new pod of a rolling update; None: one can, or the pod does not wait."""
    if not pod.unschedulable or pod.node:
        return None
    gpus = [gpu for old in state.rollouts.predecessors(pod) for gpu in _gpus(state, old)]
    needed = _memory(state, pod)
    if not gpus or not needed or any(_fits(gpu, needed) for gpu in gpus):
        return None
    return Complaint(
        REASON_MEMORY,
        f"the rolling update waits: the old and the new pod share a GPU for a while, and {gpus[0].name} has no room "
        f"for another {needed >> 20} MiB; set maxSurge to 0 and maxUnavailable to 1 in the strategy of the pod's "
        "controller, or lower spec.memory.request of its GPUShare",
    )


def _next(state: State, node: NodeRecord, workload: str, now: float) -> PodRecord | None:
    """Return the new pod for which a node should be opened.

    Args:
        state: all watched objects.
        node: the node.
        workload: the only workload for which the node may be opened, because its last rollout ends; empty: any.
        now: monotonic, in seconds.
    """
    pods = state.pods_of_node(node.name)
    by_claims = state.allocation.gives_claims(node.allocation)
    offered = _slots(state.devices_of_node(node.name)) if by_claims else node.hp_slots
    if offered > sum(count for pod in pods if pod.priority is Priority.HP for _, count in pod.slots if not pod.ended):
        return None  # the node has a free slot, and the new pod does not fit for another reason
    for pod in _waiting(state, node):
        is_next = workload in ("", pod.revision.workload) and not state.rollouts.wait(pod, node.name, now)
        if is_next and _takes(state, node, pod):
            return pod
    return None


def _waiting(state: State, node: NodeRecord) -> list[PodRecord]:
    """Return the pods without a node whose workload has a running pod on this node, oldest first."""
    pods = state.pods_of_node(node.name)
    workloads = {pod.revision.workload for pod in pods if pod.running and not pod.leaving} - {""}
    found = [pod for workload in workloads for pod in state.rollouts.waiting(workload)]
    return sorted(found, key=lambda pod: (pod.created, pod.at))


def _takes(state: State, node: NodeRecord, pod: PodRecord) -> bool:
    """Return whether the node's agent would offer a GPU with room for a new pod (`rollouts.py` of the agent)."""
    needed = _memory(state, pod)
    if needed is None:
        return False
    old = [each for each in state.rollouts.predecessors(pod) if each.node == node.name]
    gpus = [gpu for each in old for gpu in _gpus(state, each) if takes_pods(gpu) and not _has_both(gpu)]
    return any(_fits(gpu, needed) for gpu in gpus)


def _gpus(state: State, pod: PodRecord) -> list[DeviceRecord]:
    """Return the GPUs whose hp slots a pod holds, as their agent reports."""
    return [gpu for gpu in state.devices_of_node(pod.node) if pod.at in holders(gpu)]


def _has_both(gpu: DeviceRecord) -> bool:
    """Return whether a GPU has a new pod besides an old one already."""
    held = sum(row.priority is Priority.HP for row in gpu.status.held_slots or ())
    return gpu.status.slots is not None and held > gpu.status.slots.hp.total


def _holds(state: State, pod: PodRecord) -> bool:
    return bool(pod.node) and bool(_gpus(state, pod))


def _longest_end(state: State, node: NodeRecord) -> float:
    """Return for how long a node's label may say that the rollout ends: the scheduler may still see a further slot."""
    if state.allocation.gives_claims(node.allocation):
        return SLICE_S
    return ENDS_S if node.hp_slots > _slots(state.devices_of_node(node.name)) else 0.0


def _slots(gpus: list[DeviceRecord]) -> int:
    """Return how many hp slots a node offers without a rollout. Of cordoned GPUs it offers those that are held."""
    found = 0
    for gpu in gpus:
        slots = gpu.status.slots.hp if gpu.status.slots is not None else None
        if slots is not None and (takes_pods(gpu) or gpu.cordon):
            found += slots.total if takes_pods(gpu) else min(slots.held, slots.total)
    return found


def _memory(state: State, pod: PodRecord) -> int | None:
    """Return how much memory a pod reserves, in bytes; None: changes of its namespace's shares are still applied."""
    applied = state.applied(pod)
    if applied is None:
        return None
    governance, shares = applied
    share = shares.named[governance.shares[0]].share if governance.how is How.SHARE else None
    memory = share.spec.memory if share is not None else None
    amount = (memory.request or memory.limit) if memory is not None else None
    return amount.bytes if amount is not None else 0


def _fits(gpu: DeviceRecord, needed: int) -> bool:
    """Return whether a GPU has room for a second model. Without a share's request, nobody knows what the pod needs.

    What slots give back when others need it is no obstacle. What hp has beyond its request is, since hp keeps it.
    """
    memory = gpu.status.memory
    if memory is None or not needed:
        return True
    taken = max(memory.reserved or 0, (memory.used or 0) - (memory.returnable or 0))
    return memory.total - taken >= needed
