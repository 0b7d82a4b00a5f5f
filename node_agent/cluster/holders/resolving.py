"""Says who holds each slot: combines the kubelet's list of devices by container with the pods of this node.

Neither source is always right. The kubelet gives no uids, and just after its own restart it lists pods without their
devices, or no pods. The operator knows when a pod has ended, but may not answer. So a slot becomes free in two cases:
its pod has ended; or the kubelet does not list the slot, and the pod is gone or has other slots. If the kubelet lists
the slot for another container, that container holds the slot at once. A slot of a ResourceClaim has the claim's pods as
holders for as long as the driver says so (claimed.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from orion.node_agent.cluster.holders.claimed import pod_of, sharing
from orion.node_agent.cluster.holders.pods import Pod, PodName
from orion.node_agent.cluster.pod_resources import ListedHolder, SlotKey
from orion.node_agent.slots.claim import Claim
from orion.node_agent.slots.holders import Holder


@dataclass(frozen=True)
class ResolvedHolder:
    """Who holds a slot, and what the operator says of that pod."""

    holder: Holder
    created: str = ""
    """ The pod's creation time, as the API server writes times; empty: not known. """

    grant: str | None = None
    """ The text of the pod's grant. """

    others: tuple[str, ...] = ()
    """ Other living pods for which the kubelet lists the slot, as NAMESPACE/NAME. """

    claim: Claim | None = None
    """ The claim that has the slot; None: a container has it by a device plugin. """

    sharing: tuple[Holder, ...] = ()
    """ Other living pods that have the slot by the same claim. """

    @property
    def key(self) -> PodName:
        """The pod's name as the kubelet writes it."""
        return self.holder.namespace, self.holder.pod


def join(
    listing: Sequence[ListedHolder],
    pods: Mapping[PodName, Pod],
    synced: bool,
    before: Mapping[SlotKey, ResolvedHolder],
    former: Mapping[SlotKey, ResolvedHolder] = MappingProxyType({}),
) -> dict[SlotKey, ResolvedHolder]:
    """Return who holds each slot.

    Args:
        listing: the kubelet's last answer.
        pods: the pods of this node, as last received.
        synced: whether all pods were received once; until then, a pod may exist that is not in `pods`.
        before: who held each slot until now.
        former: who held a slot before a container started in it; used if the same pod has it again.
    """
    holders: dict[SlotKey, ResolvedHolder] = {}
    for entry in listing:
        resolved = _of_entry(entry, pods, before.get(entry.slot) or former.get(entry.slot))
        other = holders.get(entry.slot)
        if resolved is not None and (other is None or other.created < resolved.created):
            holders[entry.slot] = resolved
    listed = {(entry.namespace, entry.pod, entry.container) for entry in listing}
    for slot, resolved in before.items():
        # If the kubelet lists this container with another slot, the entry in `before` is an earlier pod of that name.
        elsewhere = (*resolved.key, resolved.holder.container) in listed
        if slot not in holders and not elsewhere and _still_holds(resolved, pods.get(resolved.key), synced):
            holders[slot] = _renewed(resolved, pods.get(resolved.key))
    return holders


def _of_entry(entry: ListedHolder, pods: Mapping[PodName, Pod], before: ResolvedHolder | None) -> ResolvedHolder | None:
    """Return who holds a listed slot; None: its pod has ended since the kubelet's answer."""
    pod = pods.get((entry.namespace, entry.pod))
    holder = Holder(entry.namespace, entry.pod, entry.container)
    if pod is None:
        same = before is not None and (before.key, before.holder.container) == (
            (entry.namespace, entry.pod),
            entry.container,
        )
        return before if same else ResolvedHolder(holder)
    return None if pod.ended else _renewed(ResolvedHolder(holder), pod)


def _still_holds(resolved: ResolvedHolder, pod: Pod | None, synced: bool) -> bool:
    """Return whether a holder that the kubelet does not list still holds its slot."""
    if pod is None:
        return not synced
    return not pod.ended and resolved.holder.uid in ("", pod.uid)


def _renewed(resolved: ResolvedHolder, pod: Pod | None) -> ResolvedHolder:
    if pod is None:
        return resolved
    holder = resolved.holder
    return ResolvedHolder(Holder(holder.namespace, holder.pod, holder.container, pod.uid), pod.created, pod.grant)


def of_claim(claim: Claim, pods: Mapping[PodName, Pod], before: ResolvedHolder | None) -> ResolvedHolder:
    """Return the holder of a claim's slot. A grant stays valid while the operator does not name the pod."""
    named, pod = pod_of(claim, pods)
    holder = Holder(claim.namespace, named.name if named else claim.name, "", named.uid if named else "")
    if pod is not None:
        return ResolvedHolder(holder, pod.created, pod.grant, claim=claim, sharing=sharing(claim, pods))
    same = before is not None and before.holder.uid == holder.uid
    known = before if before is not None and same else ResolvedHolder(holder)
    return replace(known, holder=holder, claim=claim, sharing=sharing(claim, pods))
