"""Decides which pods are evicted: those whose GPUShare says so, and that use a GPU in a way that it does not allow."""

from orion.crds.share import GPUShareSpec
from orion.operator.reconciler.records import Complaint
from orion.operator.reconciler.usage import Usage


def may_evict(spec: GPUShareSpec) -> bool:
    """Return whether a share lets any of its pods be evicted; most do not, and need no look at reports."""
    return spec.fail_closed or bool(spec.memory and spec.memory.evict_unparked)


def eviction(spec: GPUShareSpec, found: Usage, node: str) -> Complaint | None:
    """Return why a running pod is evicted, for an Event; None: it stays.

    An agent may report only pods of its own node. A wrong or malicious report about other pods must not evict them.

    Args:
        spec: what the pod's GPUShare says.
        found: what agents report about the pod.
        node: the pod's.
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
            if device.status.node == node and slot.keeps_room:
                return Complaint(
                    "KeepsRoom",
                    f"others need the memory of {device.name} that slot {slot.name} keeps, and the slot did not leave "
                    f"it ({slot.park_refused_reason}): the pod is evicted, because its GPUShare sets "
                    "memory.evictUnparked",
                )
    return None
