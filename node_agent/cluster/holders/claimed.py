"""The holders of slots that ResourceClaims have. The driver has named the pods, so the kubelet need not be asked.

A claim's pods share the slot. The first that has not ended stands for all of them where one pod is named.
"""

from collections.abc import Mapping

from orion.node_agent.cluster.holders.pods import Pod, PodName
from orion.node_agent.cluster.pod_resources import SlotKey
from orion.node_agent.sharing.served import ServedGpu
from orion.node_agent.slots.claim import Claim, PodOfClaim


def claimed(gpus: Mapping[str, ServedGpu]) -> dict[SlotKey, Claim]:
    """Return the claims that hold slots."""
    return {
        (uuid, slot.name): slot.claim
        for uuid, served in gpus.items()
        for slot in list(served.shared_gpu.slots.values())
        if slot.claim is not None
    }


def pod_of(claim: Claim, pods: Mapping[PodName, Pod]) -> tuple[PodOfClaim | None, Pod | None]:
    """Return the pod that stands for a claim, and what the operator says of it; None: not known."""
    for each in claim.pods:
        pod = pods.get((claim.namespace, each.name))
        if pod is not None and pod.uid == each.uid and not pod.ended:
            return each, pod
    return (claim.pods[0] if claim.pods else None), None
