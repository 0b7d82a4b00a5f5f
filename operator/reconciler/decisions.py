"""Decides from the state what to write to one object.

A share's conditions are written at once, and its counts of pods at most every 5 s. Its figures about clients and
GPUs are written at most every 30 s, and measured figures only if one has changed by more than a threshold. Otherwise
the figures of a thousand shares would keep the API server busy with writes.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from typing import Any

from orion.api_server.merging import merge_patch
from orion.crds.claims import ClaimShape
from orion.crds.conditions import Condition, ConditionType
from orion.crds.figures import clients_moved, usage_moved
from orion.operator.reconciler import records, writes
from orion.operator.reconciler.evictions import eviction, may_evict
from orion.operator.reconciler.governance import Governance, How
from orion.operator.reconciler.grants import desired_complaint
from orion.operator.reconciler.keys import Key, Kind
from orion.operator.reconciler.orphans import orphan_status
from orion.operator.reconciler.rollout_labels import rollout_complaint, rollout_label
from orion.operator.reconciler.share_conditions import REASON_PENDING, names
from orion.operator.reconciler.share_status import conditions_of, share_status
from orion.operator.reconciler.starting_nodes import node_writes
from orion.operator.reconciler.state import State

_LOOK_OFTEN_S, _LOOK_SELDOM_S = 10.0, 600.0

_GOOD = {
    ConditionType.READY: ("True",),
    ConditionType.HOOK_INJECTED: ("True", "Unknown"),
    ConditionType.POLICY_CONFLICT: ("False",),
    ConditionType.DEGRADED: ("False", "Unknown"),
    ConditionType.NOT_ENFORCED: ("False", "Unknown"),
    ConditionType.PARKED: ("True", "False"),
}
""" The statuses that need no Event. A parked slot is not a problem, and its node agent posts the Events. """


class _Urgency(IntEnum):
    """What has changed in a status. The value is the minimum time between two writes of it, in seconds."""

    CONDITIONS = 0
    COUNTS = 5
    FIGURES = 30


def decide(state: State, key: Key, now: datetime, monotonic: float) -> list[writes.Write]:
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
        return [] if pod is None or pod.leaving else list(_pod(state, pod, now, monotonic))
    if key.kind is Kind.SHARE:
        share = state.share(key.at)
        return [] if share is None else list(_share(state, share, now, monotonic))
    if key.kind is Kind.NODE:
        node = state.nodes.get(key.at.name)
        return [] if node is None else list(_node(state, node, now, monotonic))
    if key.kind is Kind.DEVICE:
        return list(_device(state, key.at, now))
    if key.kind is Kind.TEMPLATE:
        return list(_template(state, key.at, monotonic))
    return []


def _pod(state: State, pod: records.PodRecord, now: datetime, monotonic: float) -> Iterator[writes.Write]:
    governance = state.governance(pod.at)
    complaint = desired_complaint(pod, governance) or rollout_complaint(state, pod)
    if complaint != pod.complaint:
        if complaint is not None:
            reference = writes.pod_reference(pod.at, pod.uid)
            yield writes.PostEvent(reference, True, complaint.reason, "Govern", complaint.message)
        yield writes.Remember(pod.at, pod.uid, complaint)
    yield from _eviction(state, pod, governance, monotonic)
    if state.by_claims and pod.shape and pod.lacks_gpus and not pod.node:
        yield writes.SayWhatIsMissing(pod.at, pod.uid, pod.shape)
        yield writes.RequeueAfter(_wait_to_say_it_again(pod, now))


def _wait_to_say_it_again(pod: records.PodRecord, now: datetime) -> float:
    """Return after how many seconds to look again at what a pod lacks: seldom if it has waited for long."""
    waited = (now - datetime.fromisoformat(pod.created)).total_seconds() if pod.created else 0.0
    return min(_LOOK_SELDOM_S, max(_LOOK_OFTEN_S, waited / 2))


def _eviction(state: State, pod: records.PodRecord, governance: Governance, now: float) -> Iterator[writes.Write]:
    if not pod.running or governance.how is not How.SHARE:
        return
    share = state.shares(pod.at.namespace).named[governance.shares[0]].share
    if share is None or not may_evict(share.spec):
        return
    why = eviction(share.spec, state.usage([pod]), pod.node, now)
    if why is not None:
        yield writes.PostEvent(writes.pod_reference(pod.at, pod.uid), True, why.reason, "Evict", why.message)
        yield writes.EvictPod(pod.at, pod.uid)


def _share(state: State, record: records.ShareRecord, now: datetime, monotonic: float) -> Iterator[writes.Write]:
    governed, old = state.governed(record), record.read_status()
    before = conditions_of(old)
    status = share_status(record, before, governed, state.usage(governed.pods), now)
    plain = status.plain()
    soon = _urgency(old, plain)
    if soon is None:
        return
    wait = record.written + soon - monotonic
    if wait > 0:
        yield writes.RequeueAfter(wait)
        return
    yield from _share_events(record, before, status.conditions or [])
    if governed.unannotated and not (old.get("pods") or {}).get("unannotated", 0):
        note = (
            f"Orion does not manage {names(governed.unannotated)}: the selector matches these pods, but they lack the "
            "annotation orion/priority; create them again with it"
        )
        yield writes.PostEvent(
            writes.share_reference(record.at, record.uid), True, "PodsWithoutAnnotation", "Govern", note
        )
    patch = merge_patch(old, plain)
    yield writes.PatchShare(record.at, {"metadata": {"resourceVersion": str(record.version)}, "status": patch})


def _urgency(old: Mapping[str, Any], new: Mapping[str, Any]) -> _Urgency | None:
    """Return how soon the status `new` must replace `old`; None: no write is needed."""
    if old == new:
        return None
    if old.get("observedGeneration") != new.get("observedGeneration") or _states(old) != _states(new):
        return _Urgency.CONDITIONS
    if old.get("pods") != new.get("pods") or _states(old, parked=True) != _states(new, parked=True):
        return _Urgency.COUNTS
    if old.get("clientCounts") != new.get("clientCounts") or old.get("gpus") != new.get("gpus"):
        return _Urgency.FIGURES
    if _messages(old) != _messages(new) or clients_moved(old.get("clients") or (), new.get("clients") or ()):
        return _Urgency.FIGURES
    if usage_moved(old.get("slots") or (), new.get("slots") or ()):
        return _Urgency.FIGURES
    return None


def _states(status: Mapping[str, Any], parked: bool = False) -> set[tuple[Any, ...]]:
    """Return the conditions without their sentences; Parked only if asked for, as turns change it."""
    keys = ("type", "status", "reason", "observedGeneration")
    found = (each for each in status.get("conditions") or () if parked or each.get("type") != ConditionType.PARKED)
    return {tuple(condition.get(key) for key in keys) for condition in found}


def _messages(status: Mapping[str, Any]) -> list[Any]:
    return [condition.get("message") for condition in status.get("conditions") or ()]


def _share_events(
    record: records.ShareRecord, before: Sequence[Condition], after: Sequence[Condition]
) -> Iterator[writes.Write]:
    known = {condition.type: condition for condition in before}
    for condition in after:
        old = known.get(condition.type)
        is_good, was_good = _good(condition), old is None or _good(old)
        if is_good and was_good:
            continue
        if old is not None and (old.status, old.reason) == (condition.status, condition.reason):
            continue
        reason = f"{condition.type}{condition.reason}"[:128]
        since = f"{old.reason} {old.last_transition_time}" if old else ""
        note = condition.message or f"{condition.type} is {condition.status}"
        yield writes.PostEvent(
            writes.share_reference(record.at, record.uid), not is_good, reason, "Reconcile", note, since
        )


def _good(condition: Condition) -> bool:
    """Return whether a condition needs no Event: it is good, or another version's, or agents still apply grants."""
    if condition.type not in set(ConditionType):
        return True
    return condition.status in _GOOD.get(ConditionType(condition.type), ()) or condition.reason == REASON_PENDING


def _node(state: State, node: records.NodeRecord, now: datetime, monotonic: float) -> Iterator[writes.Write]:
    rollout = rollout_label(state, node, monotonic)
    by_claims = state.allocation.gives_claims(node.allocation)
    yield from node_writes(node, state.devices_of_node(node.name), rollout.value, now, by_claims)
    if rollout.again is not None:
        yield writes.RequeueAfter(rollout.again)


def _template(state: State, at: records.Named, now: float) -> Iterator[writes.Write]:
    shape = state.templates.shape(at) if state.by_claims else None
    if shape is None:
        return
    if not state.templates.pause(at, now):
        yield writes.MakeTemplate(at.namespace, ClaimShape.from_json(shape).template())
    yield writes.RequeueAfter(state.templates.pause(at, now))


def _device(state: State, at: records.Named, now: datetime) -> Iterator[writes.Write]:
    device = state.devices.get(at.name)
    if device is None or not state.is_orphan(device):
        return
    if not device.is_written:
        yield writes.DeleteDevice(at, device.uid, device.version)
    elif device.status.health != "Unknown":
        yield writes.PatchDevice(
            at, {"metadata": {"resourceVersion": str(device.version)}, "status": orphan_status(device.status, now)}
        )
