"""Decides which pods are evicted: those whose GPUShare says so, and that use a GPU in a way that it does not allow.

A disruption budget may hold an eviction back for hours. Whether others still need the room of a pod, only an agent
knows that runs now: it writes again and again that they do. The operator has seen such a write lately, or does not
evict. It compares no clocks of nodes. A process without the hook is not excused by an agent that no longer runs.
"""

from orion.crds.share import GPUShareSpec
from orion.operator.reconciler.records import Complaint
from orion.operator.reconciler.usage import Usage

_REPORT_SECONDS = 60.0
""" Agents write every 15 s that others need the room, and wait for up to 30 s after a write that failed. """


def may_evict(spec: GPUShareSpec) -> bool:
    """Return whether a share lets any of its pods be evicted; most do not, and need no look at reports."""
    return spec.fail_closed or bool(spec.memory and spec.memory.evict_unparked)


def eviction(spec: GPUShareSpec, found: Usage, node: str, now: float) -> Complaint | None:
    """Return why a running pod is evicted, for an Event; None: it stays.

    An agent may report only pods of its own node. A wrong or malicious report about other pods must not evict them.

    Args:
        spec: what the pod's GPUShare says.
        found: what agents report about the pod.
        node: the pod's.
        now: monotonic seconds.
    """
    if spec.fail_closed:
        for device, process in found.unmanaged:
            if device.status.node == node:
                return Complaint(
                    "HookMissing",
                    f"process {process.process_id} ({process.command or 'unnamed'}) uses {device.name} without the "
                    "hook: the pod is evicted, because its GPUShare sets failClosed",
                )
    if spec.memory is not None and spec.memory.evict_unparked:
        for device, slot in found.slots:
            is_fresh = now - device.reported <= _REPORT_SECONDS
            if device.status.node == node and slot.keeps_room_time and is_fresh:
                return Complaint(
                    "KeepsRoom",
                    f"others need the memory of {device.name} that slot {slot.name} keeps, and the slot did not leave "
                    f"it ({slot.park_refused_reason}): the pod is evicted, because its GPUShare sets "
                    "memory.evictUnparked",
                )
    return None
