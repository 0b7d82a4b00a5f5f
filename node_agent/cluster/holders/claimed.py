"""The holders of slots that ResourceClaims have.

The driver names the pods for which it prepares a claim. The kubelet does not ask the driver for a pod that comes later,
while the claim is prepared, but lists it, without its uid, among the claim's users. So the agent tells the driver which
claims have other pods than the driver has named, and the driver reads them again. A claim's pods share the slot. The
first that has not ended stands for all of them where one pod is named.
"""

from collections.abc import Mapping, Sequence

from orion.node_agent.cluster.holders.pods import Pod, PodName
from orion.node_agent.cluster.pod_resources import ClaimUser, SlotKey
from orion.node_agent.sharing.served import ServedGpu
from orion.node_agent.slots.claim import Claim, PodOfClaim
from orion.node_agent.slots.holders import Holder


def claimed(gpus: Mapping[str, ServedGpu]) -> dict[SlotKey, Claim]:
    """Return the claims that hold slots."""
    return {
        (uuid, slot.name): slot.claim
        for uuid, served in gpus.items()
        for slot in list(served.shared_gpu.slots.values())
        if slot.claim is not None
    }


def other_users(claims: Mapping[SlotKey, Claim], users: Sequence[ClaimUser]) -> dict[str, tuple[str, ...]]:
    """Return the claims whose pods are others than the driver has named: by uid, the pods that the kubelet lists."""
    listed: dict[PodName, set[str]] = {}
    for user in users:
        listed.setdefault((user.namespace, user.claim), set()).add(user.pod)
    found = {claim.uid: (claim, listed.get((claim.namespace, claim.name), set())) for claim in claims.values()}
    return {
        uid: tuple(sorted(pods))
        for uid, (claim, pods) in sorted(found.items())
        if pods and pods != {each.name for each in claim.pods} and not claim.released
    }


def containers(claims: Mapping[SlotKey, Claim], users: Sequence[ClaimUser]) -> dict[Holder, frozenset[SlotKey]]:
    """Return the containers that use claims, as the kubelet lists them, each with the slots of its claim."""
    slots: dict[PodName, set[SlotKey]] = {}
    uids: dict[tuple[PodName, str], str] = {}
    for key, claim in claims.items():
        name = (claim.namespace, claim.name)
        slots.setdefault(name, set()).add(key)
        uids |= {(name, each.name): each.uid for each in claim.pods}
    return {
        Holder(user.namespace, user.pod, user.container, uid): frozenset(slots[user.namespace, user.claim])
        for user in users
        if (uid := uids.get(((user.namespace, user.claim), user.pod)))
    }


def pod_of(claim: Claim, pods: Mapping[PodName, Pod]) -> tuple[PodOfClaim | None, Pod | None]:
    """Return the pod that stands for a claim, and what the operator says of it; None: not known."""
    for each in claim.pods:
        pod = pods.get((claim.namespace, each.name))
        if pod is not None and pod.uid == each.uid and not pod.ended:
            return each, pod
    return (claim.pods[0] if claim.pods else None), None


def sharing(claim: Claim, pods: Mapping[PodName, Pod]) -> tuple[Holder, ...]:
    """Return the pods that share a claim's slot with the one that stands for it, unless they have ended."""
    first, _ = pod_of(claim, pods)
    return tuple(
        Holder(claim.namespace, each.name, "", each.uid)
        for each in claim.pods
        if each != first and not ((pod := pods.get((claim.namespace, each.name))) and pod.uid == each.uid and pod.ended)
    )
