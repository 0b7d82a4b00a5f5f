"""Decides when a fresh node is ready for pods with slots, and removes its startup taint.

A kubelet reports its node as ready before Orion's device plugin runs there. An autoscaler that sees a ready node
without slots concludes that the node cannot serve the pending pod, and adds another node or gives the node up. So the
template of a node group has the startup taint, and the operator removes it once the slots have appeared.

Until then the node keeps the labels orion.gpu/... of its template: a pod may require them.

Rejected: an agent that removes the taint of its node. It would need the right to patch nodes, which RBAC cannot
restrict to one node.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from orion.crds.annotations import RESOURCES, STARTUP_TAINT
from orion.crds.conditions import ConditionType
from orion.crds.policy import Priority
from orion.operator.reconciler import writes
from orion.operator.reconciler.node_labels import label_changes
from orion.operator.reconciler.records import Complaint, DeviceRecord, Named, NodeRecord, Starting

PATIENCE_S = 300.0
""" Age at which a node that still has no slots gets an Event. """
_REASON = "StartupTaintKept"


def node_writes(
    node: NodeRecord, devices: Sequence[DeviceRecord], rollout: str | None, now: datetime, by_claims: bool = False
) -> Iterator[writes.Write]:
    """Yield the writes to a node.

    Args:
        node: the node.
        devices: the node's GPUs.
        rollout: the value of the label of a rolling update; None: there is none.
        now: the time.
        by_claims: whether pods get slots by claims. Then the kubelet offers none, and the scheduler waits by itself for
            the node's ResourceSlice.
    """
    at = Named("", node.name)
    missing = _missing(node.starting, devices, by_claims) if node.starting else ""
    if not missing:
        if changes := label_changes(node, devices, rollout):
            yield writes.PatchNode(at, {"metadata": {"uid": node.uid, "labels": changes}})
        if node.starting:
            yield writes.RemoveTaints(at, _removal(node.uid, node.starting))
    yield from _complain(at, node, missing, now)


def _complain(at: Named, node: NodeRecord, missing: str, now: datetime) -> Iterator[writes.Write]:
    wait = PATIENCE_S - (now - node.starting.created).total_seconds() if missing and node.starting else 0.0
    if wait > 0:
        yield writes.RequeueAfter(wait)
        return
    note = f"no pod can be scheduled on node {node.name}, which keeps the taint {STARTUP_TAINT}: {missing}"
    complaint = Complaint(_REASON, note) if missing else None
    if complaint == node.complaint:
        return
    if complaint is not None:
        yield writes.PostEvent(writes.node_reference(node.name, node.uid), True, _REASON, "Start", note)
    yield writes.Remember(at, node.uid, complaint)


def _missing(starting: Starting, devices: Sequence[DeviceRecord], by_claims: bool) -> str:
    """Return what a starting node still lacks, as the end of a sentence; empty: nothing."""
    if not devices:
        return "no node agent has reported a GPU of it; look at the pod of Orion's DaemonSet on this node"
    reported = {
        Priority.HP: sum(each.status.slots.hp.total for each in devices if each.status.slots),
        Priority.BE: sum(each.status.slots.be.total for each in devices if each.status.slots),
    }
    if not any(reported.values()):
        return f"its GPUs have no slots{_why_not(devices)}"
    for priority, total in () if by_claims else reported.items():
        offered = starting.slots.get(priority, 0)
        if total and not offered:
            return f"the kubelet does not offer {RESOURCES[priority]} yet; look at the container device-plugin there"
        if offered > total:
            return f"the kubelet offers {offered} {RESOURCES[priority]}, and the node agent has reported {total} so far"
    return ""


def _why_not(devices: Sequence[DeviceRecord]) -> str:
    for device in devices:
        for each in device.status.conditions or ():
            if each.type == ConditionType.READY and each.status != "True" and each.message:
                return f": {device.name}: {each.message}"
    return ""


def _removal(uid: str, starting: Starting) -> list[dict[str, object]]:
    """Return a JSON patch. It fails if the node is another one, or if its taints have changed since."""
    operations: list[dict[str, object]] = [{"op": "test", "path": "/metadata/uid", "value": uid}]
    for index in reversed(starting.taints):
        place = f"/spec/taints/{index}"
        operations.append({"op": "test", "path": f"{place}/key", "value": STARTUP_TAINT})
        operations.append({"op": "remove", "path": place})
    return operations
