"""Decides from the state what to write to one object."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from orion.api_server.merging import merge_patch
from orion.crds import annotations
from orion.crds.conditions import Condition, ConditionType, timestamp
from orion.crds.grant import PodGrant
from orion.errors import Unreadable
from orion.operator.reconciler.governance import Governance, How
from orion.operator.reconciler.grants import desired_complaint, desired_grant
from orion.operator.reconciler.node_labels import label_changes
from orion.operator.reconciler.orphans import orphan_status
from orion.operator.reconciler.records import GOVERNED, Complaint, Named, PodRecord, ShareRecord
from orion.operator.reconciler.share_conditions import REASON_PENDING, names
from orion.operator.reconciler.share_status import conditions_of, share_status
from orion.operator.reconciler.state import Key, Kind, State
from orion.operator.reconciler.urgency import urgency
from orion.operator.reconciler.writes import (
    EvictPod,
    PatchDevice,
    PatchNode,
    PatchPod,
    PatchShare,
    PostEvent,
    RequeueAfter,
    Write,
    pod_reference,
    share_reference,
)

_GOOD = {
    ConditionType.READY: ("True",),
    ConditionType.HOOK_INJECTED: ("True", "Unknown"),
    ConditionType.POLICY_CONFLICT: ("False",),
    ConditionType.DEGRADED: ("False", "Unknown"),
}


def decide(state: State, key: Key, now: datetime, monotonic: float) -> list[Write]:
    """Return the writes that bring an object to its desired state, in the order in which they must be made.

    An Event comes before the status that it belongs to. If the operator is killed between the two writes, it posts the
    Event again under the same name, and the API server rejects the duplicate. In the opposite order, the Event would be
    lost.

    Args:
        state: all watched objects.
        key: the object.
        now: the transition time of new conditions.
        monotonic: the monotonic time in seconds; it gives the time since the last write of a status.
    """
    if key.kind is Kind.POD:
        pod = state.pod(key.at)
        return [] if pod is None or pod.leaving else list(_pod(state, pod, now))
    if key.kind is Kind.SHARE:
        share = state.share(key.at)
        return [] if share is None else list(_share(state, share, now, monotonic))
    if key.kind is Kind.NODE:
        return list(_node(state, key.at))
    if key.kind is Kind.DEVICE:
        return list(_device(state, key.at, now))
    return []


def _pod(state: State, pod: PodRecord, now: datetime) -> Iterator[Write]:
    governance, shares = state.governance(pod.at), state.shares(pod.at.namespace)
    grant, complaint = desired_grant(pod, governance, shares), desired_complaint(pod, governance)
    patch: dict[str, Any] = {}
    if grant is not None and grant != pod.grant:
        patch["metadata"] = {"annotations": {annotations.GRANT: grant}}
    if complaint != pod.complaint:
        patch["status"] = {"conditions": [_condition(complaint, now)]}
        if complaint is not None:
            reference = pod_reference(pod.at, pod.uid)
            yield PostEvent(reference, True, complaint.reason, "Govern", complaint.message)
    if patch:
        patch.setdefault("metadata", {})["uid"] = pod.uid
        yield PatchPod(pod.at, patch)
    yield from _eviction(state, pod, governance)


def _condition(complaint: Complaint | None, now: datetime) -> dict[str, str]:
    if complaint is None:
        return {"$patch": "delete", "type": GOVERNED}
    return {
        "type": GOVERNED,
        "status": "False",
        "reason": complaint.reason,
        "message": complaint.message,
        "lastTransitionTime": timestamp(now),
    }


def _eviction(state: State, pod: PodRecord, governance: Governance) -> Iterator[Write]:
    if not pod.running or governance.how is How.UNMANAGED or not _fail_closed(state, pod, governance):
        return
    # An agent may report only pods of its own node. A wrong or malicious report about other pods must not evict them.
    found = [each for each in state.usage([pod]).unmanaged if each[0].status.node == pod.node]
    if not found:
        return
    device, unmanaged = found[0]
    note = (
        f"process {unmanaged.process_id} ({unmanaged.command or 'unnamed'}) uses {device.name} without the hook: "
        "the pod is evicted, because its grant sets failClosed"
    )
    yield PostEvent(pod_reference(pod.at, pod.uid), True, "HookMissing", "Evict", note)
    yield EvictPod(pod.at, pod.uid)


def _fail_closed(state: State, pod: PodRecord, governance: Governance) -> bool:
    if governance.how is How.SHARE:
        share = state.shares(pod.at.namespace).named[governance.shares[0]].share
        return share is not None and share.spec.fail_closed
    try:
        return pod.grant is not None and PodGrant.from_json(pod.grant).fail_closed
    except Unreadable:
        return False


def _share(state: State, record: ShareRecord, now: datetime, monotonic: float) -> Iterator[Write]:
    governed = state.governed(record)
    status = share_status(record, governed, state.usage(governed.pods), now)
    plain = status.plain()
    soon = urgency(record.status, plain)
    if soon is None:
        return
    wait = record.written + soon - monotonic
    if wait > 0:
        yield RequeueAfter(wait)
        return
    yield from _share_events(record, status.conditions or [])
    before = (record.status.get("pods") or {}).get("unannotated", 0)
    if governed.unannotated and not before:
        note = (
            f"Orion does not manage {names(governed.unannotated)}: the selector matches these pods, but they lack the "
            "annotation orion/priority; create them again with it"
        )
        yield PostEvent(share_reference(record.at, record.uid), True, "PodsWithoutAnnotation", "Govern", note)
    patch = merge_patch(record.status, plain)
    yield PatchShare(record.at, {"metadata": {"resourceVersion": str(record.version)}, "status": patch})


def _share_events(record: ShareRecord, conditions: list[Condition]) -> Iterator[Write]:
    before = {condition.type: condition for condition in conditions_of(record.status)}
    for condition in conditions:
        old = before.get(condition.type)
        is_good, was_good = _good(condition), old is None or _good(old)
        if is_good and was_good:
            continue
        if old is not None and (old.status, old.reason) == (condition.status, condition.reason):
            continue
        reason = f"{condition.type}{condition.reason}"[:128]
        since = f"{old.reason} {old.last_transition_time}" if old else ""
        note = condition.message or f"{condition.type} is {condition.status}"
        yield PostEvent(share_reference(record.at, record.uid), not is_good, reason, "Reconcile", note, since)


def _good(condition: Condition) -> bool:
    """Return whether no Event is needed. Grants that are still being written need none."""
    return condition.status in _GOOD.get(ConditionType(condition.type), ()) or condition.reason == REASON_PENDING


def _node(state: State, at: Named) -> Iterator[Write]:
    node = state.nodes.get(at.name)
    changes = label_changes(node, state.devices_of_node(at.name)) if node else {}
    if changes and node:
        yield PatchNode(at, {"metadata": {"uid": node.uid, "labels": changes}})


def _device(state: State, at: Named, now: datetime) -> Iterator[Write]:
    device = state.devices.get(at.name)
    if device is not None and device.status.health != "Unknown" and state.is_orphan(device):
        yield PatchDevice(
            at, {"metadata": {"resourceVersion": str(device.version)}, "status": orphan_status(device.status, now)}
        )
