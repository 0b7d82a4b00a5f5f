"""Collects what the node agents report about the pods of one share, from the GPUDevices that the pods use."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orion.crds.device_status import SHARING_MAX
from orion.operator.reconciler.records import DeviceRecord, Named, PodRecord, ShareRecord
from orion.operator.reconciler.reports import ReportedClient, ReportedPod, ReportedProcess, ReportedSlot

STOPPED = "stopped"

Client = tuple[DeviceRecord, ReportedClient]
""" The row of a process, and its GPU. """
Slot = tuple[DeviceRecord, ReportedSlot]


@dataclass(slots=True)
class Usage:
    """The rows in GPUDevice statuses that belong to a set of pods."""

    devices: dict[str, DeviceRecord] = field(default_factory=dict)
    """ The GPUs on which one of the pods holds a slot, by name. """
    slots: list[Slot] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    unmanaged: list[tuple[DeviceRecord, ReportedProcess]] = field(default_factory=list)
    leaving: set[Named] = field(default_factory=set)
    """ The pods on these GPUs that end, whatever share governed them. """
    sharing: set[str] = field(default_factory=set)
    """ The names of the pods that use the slot of another pod, by their common claim. """
    sharing_more: bool = False
    """ One of these slots is used by so many pods that its row may not name all of them. """

    @property
    def processes(self) -> int:
        """The number of clients. It comes from the slots, because a GPUDevice has at most 64 client rows."""
        return max(sum(row.clients for _, row in self.slots), len(self.clients))


def named_pods(device: DeviceRecord) -> set[Named]:
    """Return the pods that a GPU's status names."""
    status = device.status
    rows: tuple[ReportedSlot | ReportedClient | ReportedProcess, ...]
    rows = (*(status.held_slots or ()), *(status.clients or ()), *(status.unmanaged or ()))
    sharing = (pod for row in status.held_slots or () for pod in row.shared_with or ())
    pods = (*(row.pod for row in rows if row.pod is not None), *sharing)
    return {Named(pod.namespace, pod.name) for pod in pods}


def usage(pods: Iterable[PodRecord], devices: Iterable[DeviceRecord]) -> Usage:
    """Collect the rows of `devices` that belong to `pods`."""
    uids: dict[tuple[str, str], str] = {pod.at: pod.uid for pod in pods}
    found = Usage()
    for device in devices:
        status = device.status
        for slot in status.held_slots or ():
            if _is_one(slot.pod, uids):
                found.devices[device.name] = device
                found.slots.append((device, slot))
            sharing = {each.name for each in slot.shared_with or () if _is_one(each, uids)}
            found.sharing |= sharing
            found.sharing_more |= bool(sharing) and len(slot.shared_with or ()) == SHARING_MAX
        for row in status.clients or ():
            if _is_one(row.pod, uids):
                found.clients.append((device, row))
        for unmanaged in status.unmanaged or ():
            if _is_one(unmanaged.pod, uids):
                found.unmanaged.append((device, unmanaged))
    return found


def without_grant(share: ShareRecord, pods: Iterable[PodRecord], found: Usage) -> set[str]:
    """Return the pods that do not have the share's present grant yet, as their node agents report.

    They are those with a slot that does not have it, and running pods of which no agent has reported a slot.
    """
    rows = [(row.pod.name, row) for _, row in found.slots if row.pod is not None]
    running = {pod.at.name for pod in pods if pod.running and not pod.leaving}
    silent = set() if found.sharing_more else running.difference(found.sharing, (name for name, _ in rows))
    return silent | {name for name, row in rows if not _has_grant(row, share)}


def _has_grant(row: ReportedSlot, share: ShareRecord) -> bool:
    """Return whether a slot has the share's present grant. A later share of the same name begins at generation 1."""
    same = row.share_uid in (None, share.uid)
    return same and (row.share, row.generation) == (share.at.name, share.generation)


def _is_one(pod: ReportedPod | None, uids: Mapping[tuple[str, str], str]) -> bool:
    """Return whether a row belongs to one of the pods. An earlier pod of the same name has another uid."""
    if pod is None:
        return False
    uid = uids.get((pod.namespace, pod.name))
    return uid is not None and pod.uid in (None, uid)


def worst_first(clients: Iterable[Client]) -> list[Client]:
    """Return clients, worst first: those with a message, then stopped ones, then by slowdown, gated time and name."""
    return sorted(clients, key=_sort_key)


def least_served_first(slots: Iterable[Slot]) -> list[Slot]:
    """Return the slots that are parked, then those that were charged least of what they were due.

    Slots that are neither parked nor have a known GPU time are left out. Small differences do not count, so the order
    rarely changes.
    """
    return sorted((each for each in slots if each[1].usage is not None or each[1].parked is not None), key=_service)


def parked_pods(slots: Iterable[Slot]) -> set[str]:
    """Return the names of the pods of which a slot is parked."""
    return {row.pod.name for _, row in slots if row.parked is not None and row.pod is not None}


def _service(slot: Slot) -> tuple[bool, int, str, str, str, str]:
    device, row = slot
    lacking = row.usage.due - row.usage.charged if row.usage else 0.0
    pod = (row.pod.namespace, row.pod.name) if row.pod else ("", "")
    return row.parked is None, -max(0, int(lacking * 10)), *pod, device.name, row.name


def _sort_key(client: Client) -> tuple[bool, bool, float, float, tuple[str, str, str, str, int]]:
    device, row = client
    pod = (row.pod.namespace, row.pod.name) if row.pod else ("", "")
    return (
        row.message is None,
        row.state != STOPPED,
        -(row.slowdown or 0.0),
        -(row.gated_ratio or 0.0),
        (*pod, row.gpu or device.status.uuid or "", row.slot, row.process_id),
    )
