"""Posts Events about a GPU and its pods: when a problem begins, and for a GPU also when the problem ends."""

from orion.crds.conditions import Condition, ConditionType
from orion.crds.device_status import GPUDeviceStatus
from orion.node_agent.advertising.advertising import Verdict
from orion.node_agent.cluster.reporting.device_conditions import OVER_RESERVED, mib
from orion.node_agent.cluster.reporting.events import Events, Subject, node, pod
from orion.node_agent.cluster.reporting.gpu_devices import Device
from orion.node_agent.cluster.state import GpuState, HolderState, PolicyState
from orion.node_agent.snapshots import GpuView, SlotView

_BAD = {
    ConditionType.READY: "False",
    ConditionType.MODE_PENDING: "True",
    ConditionType.POLICY_CONFLICT: "True",
    ConditionType.DEGRADED: "True",
}
""" This list does not contain HookInjected, because each process without the hook has its own Event. """

_CORDONED = "Cordoned"
_WISHED = (_CORDONED, "ClientsPresent", "Changing", "ModeChanging")
""" Reasons whose Events are not warnings, because people requested this state or the change to it. """


def post_changes(events: Events, about: Subject, device: Device, status: GPUDeviceStatus) -> None:
    """Post Events for the changes in a status that is about to be written."""
    before = {each.type: each for each in device.status.conditions or ()}
    for condition in status.conditions or ():
        old = before.get(condition.type)
        if old is not None and (old.status, old.reason) == (condition.status, condition.reason):
            continue
        key = f"{condition.reason} {old.reason} {old.last_transition_time}" if old else condition.reason
        if condition.status == _BAD.get(ConditionType(condition.type)):
            reason, warning = _reason(condition, status), condition.reason not in _WISHED
            events.post(about, reason, f"{status.uuid}: {condition.message}", warning=warning, key=key)
        elif condition.type == ConditionType.READY and condition.status == "True" and old and old.status != "True":
            note = f"{status.uuid}: new pods can get slots of it again (before: {old.reason})"
            events.post(about, "GPUReady", note, warning=False, key=key)
        elif condition.type == ConditionType.READY and condition.status == "Unknown":
            events.post(about, "GPUGone", f"{status.uuid}: {condition.message}", key=key)


def _reason(condition: Condition, status: GPUDeviceStatus) -> str:
    if condition.type == ConditionType.READY:
        if condition.reason == _CORDONED:
            return "GPUCordoned"
        if condition.reason.startswith("Mode"):
            return f"GPU{condition.reason}"
        return "GPUUnhealthy" if status.health == "Unhealthy" else "GPUNotAdvertised"
    if condition.type == ConditionType.MODE_PENDING:
        return f"Mode{condition.reason}"
    return condition.type if condition.type == ConditionType.POLICY_CONFLICT else condition.reason


def post_pod_events(events: Events, view: GpuView, state: GpuState) -> None:
    """Post Events about the problems of the pods on a GPU."""
    uuid = view.gpu.uuid
    holders = {slot.name: slot.holder for slot in state.held if slot.holder is not None}
    for slot in state.held:
        for problem in slot.problems if slot.holder else ():
            events.post(pod(holders[slot.name]), problem.reason, f"slot {slot.name} of {uuid}: {problem.message}")
        _post_sharing(events, uuid, slot)
    for slot_view in view.slots:
        if slot_view.name in holders:
            _post_parking(events, pod(holders[slot_view.name]), slot_view)
        for client in slot_view.clients if slot_view.name in holders else ():
            for each in client.conditions:
                note = f"process {client.process_id} ({client.command}) on {uuid} {each.message}"
                key = f"{uuid} {client.process_id} {client.generation}"
                events.post(pod(holders[slot_view.name]), each.reason, note, key=key)
    _post_conflicts(events, uuid, state.policy)
    _post_over_reserved(events, view, state)


def _post_sharing(events: Events, uuid: str, slot: HolderState) -> None:
    """Tell each pod that came to a claim later with whom it shares the slot, and whose GPUShare applies."""
    if slot.holder is None:
        return
    first = slot.holder.name
    whose = f"GPUShare {slot.share} of {first}" if slot.share else f"what applies to {first}"
    for each in slot.sharing:
        note = (
            f"it uses ResourceClaim {slot.claim} together with {first}, so both are one tenant in slot {slot.name} of "
            f"{uuid}, and {whose} limits both together: for limits of its own, give it a claim of its own"
        )
        events.post(pod(each), "SharesSlot", note, warning=False, key=f"{uuid} {slot.name} {slot.holder.uid}")


def _post_parking(events: Events, about: Subject, slot: SlotView) -> None:
    """Post that a pod has left the GPU's memory, or has come back: both are as its GPUShare wants it."""
    key, parking = f"{slot.gpu} {slot.name} {slot.parking.number}", slot.parking
    if parking.state == "parked":
        why = "an administrator wants it away" if parking.is_wished_away else "others need the room"
        note = (
            f"slot {slot.name} of {slot.gpu} has left the GPU's memory, {mib(parking.held_bytes)}, because {why}: its "
            "programs wait in the host's memory until there is room for them"
        )
        events.post(about, "Parked", note, warning=False, key=key)
    elif not parking.state and parking.number and parking.away_seconds:
        note = f"slot {slot.name} of {slot.gpu} is back in the GPU's memory after {parking.away_seconds:.0f} s"
        events.post(about, "Returned", note, warning=False, key=key)


def _post_conflicts(events: Events, uuid: str, policy: PolicyState) -> None:
    deciding = policy.deciding
    if deciding is None:
        return
    for asking in policy.conflicting:
        note = (
            f"{uuid} uses the policy of GPUShare {deciding.share} of {deciding.holder.name}, the oldest hp pod, "
            f"and not that of GPUShare {asking.share}: give hp pods of one GPU equal policies, or a GPU each"
        )
        events.post(pod(asking.holder), "PolicyConflict", note)


def _post_over_reserved(events: Events, view: GpuView, state: GpuState) -> None:
    """Post one Event for each pod that reserves memory: any of them may get less than was granted."""
    total, reserved = view.gpu.memory_bytes, state.memory_reserved_bytes
    for slot in state.held if 0 < total < reserved else ():
        if slot.holder is not None and slot.memory_request_bytes:
            note = (
                f"the pods on {view.gpu.uuid} reserve {mib(reserved)} of its {mib(total)}, of which this one reserves "
                f"{mib(slot.memory_request_bytes)} in slot {slot.name}: an allocation within its limit may fail; let "
                "GPUShares ask for less (spec.memory), or delete a pod so that it can start on another GPU"
            )
            events.post(pod(slot.holder), OVER_RESERVED, note, key=f"{view.gpu.uuid} {slot.name}")


def post_node_event(events: Events, name: str, uuid: str, verdict: Verdict) -> None:
    """Post why a node does not advertise a GPU."""
    events.post(node(name), "GPUNotAdvertised", f"{uuid}: {verdict.message}", key=f"{uuid} {verdict.reason}")
