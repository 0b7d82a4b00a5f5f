"""Computes the five conditions of a share: for each, the status, a reason and a message."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from orion.crds.conditions import Condition, ConditionType
from orion.crds.policy import Oversubscribe, Priority
from orion.crds.quantities import Memory
from orion.crds.share import GPUShareSpec
from orion.crds.share_rules import BORROWS_FOR_GOOD, borrows_for_good
from orion.operator.reconciler import enforcement
from orion.operator.reconciler.governance import REASON_TOO_MANY, REASON_UNREADABLE, Governance
from orion.operator.reconciler.grants import REASON_NOT_ADMITTED
from orion.operator.reconciler.records import DeviceRecord, Named, PodRecord, ShareRecord
from orion.operator.reconciler.reports import ReportedClient, ReportedSlot
from orion.operator.reconciler.usage import STOPPED, Usage
from orion.planning.sharing.due import Claim, due

REASON_PENDING = "GrantsPending"
REASON_OVER_RESERVED = "MemoryOverReserved"
_NAMED = 3
_SLACK = 1.05
""" Hysteresis against fluctuating figures: the finding SlowedDown begins 5 % above maxSlowdown and ends at maxSlowdown.
"""


class Finding(NamedTuple):
    """The content of a condition. If `holds` is None, the status is Unknown."""

    holds: bool | None
    reason: str
    message: str = ""


@dataclass(slots=True)
class Governed:
    """The pods of a share. Every list is sorted by name."""

    pods: list[PodRecord] = field(default_factory=list)
    not_admitted: list[str] = field(default_factory=list)
    """ The names of the pods in `pods` that ask for no slot. """
    refused: list[tuple[str, Governance]] = field(default_factory=list)
    """ Pods that the share claims but cannot govern, each with the reason. """
    unannotated: list[str] = field(default_factory=list)
    """ Pods that the selector matches but that are not managed. """
    too_many: str = ""
    """ Why the share does not govern, if its namespace has too many older shares. """


def names(all_names: Sequence[str]) -> str:
    """Return a list of names as text: the first three, and the number of the others."""
    first = ", ".join(all_names[:_NAMED])
    more = len(all_names) - _NAMED
    return f"{first} and {more} more" if more > 0 else first


def ready(record: ShareRecord, governed: Governed, missing: int, found: Usage) -> Finding:
    """Return whether every pod that the share claims has the share's grant, and a GPU with the memory it reserves.

    Of the governed pods, `missing` have a node agent that has not applied the current grant of the share yet.
    """
    if record.share is None:
        return Finding(False, REASON_UNREADABLE, f"this version of Orion cannot read the share: {record.unreadable}")
    if governed.too_many:
        return Finding(False, REASON_TOO_MANY, governed.too_many)
    if governed.refused:
        pod, why = governed.refused[0]
        more = f" (and {len(governed.refused) - 1} more pods)" if len(governed.refused) > 1 else ""
        return Finding(False, why.reason, f"pod {pod}{more}: {why.message}")
    if governed.not_admitted:
        return Finding(
            False,
            REASON_NOT_ADMITTED,
            f"Orion's webhook did not admit these pods, so they ask for no slot: {names(governed.not_admitted)}; "
            "delete them and create them again",
        )
    pods = len(governed.pods)
    if missing:
        what = f"the node agents of {missing} of {pods} pods have not applied the grant of this share yet"
        return Finding(False, REASON_PENDING, what)
    if (over := over_reserved(record.share.spec, found)) is not None:
        return over
    if not pods:
        return Finding(True, "NoPods", "the share governs no pod")
    who = "the pod has" if pods == 1 else f"all {pods} pods have"
    return Finding(True, "Granted", f"{who} the grant of this share{_not_sure(record.share.spec)}")


def _not_sure(spec: GPUShareSpec) -> str:
    """Return which memory the share allows and does not reserve, as the end of a sentence; empty: none."""
    memory = spec.memory
    if memory is None or memory.request is None:
        return ""
    reserves = f"; spec.memory reserves {memory.request} of a GPU for each slot"
    if memory.limit is None:
        return f"{reserves} and sets no limit: what a slot allocates beyond that is not sure, as other pods may get it"
    if memory.limit.bytes == memory.request.bytes:
        return ""
    between = Memory.of_bytes(memory.limit.bytes - memory.request.bytes)
    return f"{reserves} and allows {memory.limit}: the {between} between them are not sure, as other pods may get them"


def over_reserved(spec: GPUShareSpec, found: Usage) -> Finding | None:
    """Return the finding that pods reserve more memory of a GPU than it has; the scheduler does not check this.

    The finding names one pod of the share: a pod without a process comes first, because its program may have failed.
    """
    memory = None if spec.memory is None else spec.memory.request or spec.memory.limit
    if memory is None:
        return None
    pods = [
        (row.clients, row.pod.name, device, lacking)
        for device, row in found.slots
        if row.pod is not None and (lacking := _over_reserved(device))
    ]
    if not pods:
        return None
    _, pod, device, (reserved, total) = min(pods, key=lambda each: (each[0], each[1], each[2].name))
    more = f" (and {len(pods) - 1} more)" if len(pods) > 1 else ""
    left = Memory.of_bytes(max(0, total - (reserved - memory.bytes)))
    return Finding(
        False,
        REASON_OVER_RESERVED,
        f"pod {pod}{more} reserves {memory} on {device.name} of node {device.status.node}, but the GPU's pods reserve "
        f"{Memory.of_bytes(reserved)} of {Memory.of_bytes(total)}, so {left} are left for it and its allocations may "
        "fail; lower spec.memory to that, or delete the pod so that it can start on another GPU",
    )


def _over_reserved(device: DeviceRecord) -> tuple[int, int] | None:
    """Return the memory that a GPU's pods reserve and the GPU's memory, in bytes; None: the GPU has enough."""
    memory = device.status.memory
    if memory is None or memory.reserved is None or not 0 < memory.total < memory.reserved:
        return None
    return memory.reserved, memory.total


def hook_injected(found: Usage) -> Finding:
    """Return whether every process of the pods that uses a GPU has the hook."""
    if found.unmanaged:
        device, unmanaged = found.unmanaged[0]
        pod = unmanaged.pod.name if unmanaged.pod else "an unknown pod"
        more = f" (and {len(found.unmanaged) - 1} more)" if len(found.unmanaged) > 1 else ""
        what = f"process {unmanaged.process_id} ({unmanaged.command or 'unnamed'}) of pod {pod} on {device.name}{more}"
        return Finding(False, "Unmanaged", f"{what} runs without the hook, so Orion cannot limit its GPU time")
    if not found.processes:
        return Finding(None, "NoClients", "no process of these pods uses a GPU")
    return Finding(True, "Joined", "every process of these pods that uses a GPU has the hook")


def policy_conflict(record: ShareRecord, found: Usage) -> Finding:
    """Return whether a GPU of the pods uses the policy of another share."""
    spec = record.share.spec if record.share else None
    if spec is None or spec.priority is not Priority.HP:
        return Finding(False, "NoPolicy", "only shares of hp pods set the policy of a GPU")
    own = f"{record.at.namespace}/{record.at.name}"
    for _, device in sorted(found.devices.items()):
        applied = device.status.policy
        if applied and own in (applied.conflicting or ()):
            return Finding(
                True,
                "OtherShare",
                f"{device.name} uses policy {applied.name} of GPUShare {applied.share}: give all hp pods of one GPU "
                "the same policy, or run them on different GPUs",
            )
    return Finding(False, "Applied", "no GPU of these pods uses another share's policy")


def degraded(record: ShareRecord, found: Usage, rows: Sequence[ReportedClient], before: Sequence[Condition]) -> Finding:
    """Return whether pods get less than their share specifies. `rows` are the clients, worst first."""
    spec = record.share.spec if record.share else None
    if spec is None:
        return Finding(None, REASON_UNREADABLE, "the share cannot be read")
    for name, device in sorted(found.devices.items()):
        if device.status.health == "Unhealthy":
            return Finding(True, "UnhealthyGPU", f"{name} on node {device.status.node} is unhealthy")
    stays = {row.park_refused for _, row in found.slots}  # what slots report, their clients report too
    reported = [row for row in rows if row.message and row.message not in stays]
    if reported:
        return Finding(True, "ClientTroubled", f"{_who(reported)}: {reported[0].message}")
    stopped = [row for row in rows if row.state == STOPPED]
    if stopped:
        return Finding(True, "ClientStopped", f"{_who(stopped)}: the process is stopped and keeps its slot")
    was = next((each.reason for each in before if each.type == ConditionType.DEGRADED), "")
    found_less = _slowed(spec, rows, was) or _refused(found) or _scaled(found) or _borrows_for_good(spec)
    return found_less or Finding(False, "AsAsked", "every pod gets what the share specifies")


def _refused(found: Usage) -> Finding | None:
    """Return the finding that a slot which should have left the GPU's memory did not."""
    rows = sorted((row.pod.name, device.name, row.park_refused, row.park_refused_reason or "ParkRefused")
                  for device, row in found.slots if row.pod and row.park_refused)  # fmt: skip
    if not rows:
        return None
    pod, device, why, reason = rows[0]
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    return Finding(True, reason, f"pod {pod}{more} could not leave the memory of {device}: {why}")


def _borrows_for_good(spec: GPUShareSpec) -> Finding | None:
    """Return the finding that a share from before `oversubscribe` lets a slot keep what it borrows."""
    return Finding(True, "MemoryNotGivenBack", BORROWS_FOR_GOOD) if borrows_for_good(spec) else None


def _slowed(spec: GPUShareSpec, rows: Sequence[ReportedClient], before: str) -> Finding | None:
    limit = spec.max_slowdown
    if limit is None:
        return None
    bound = limit if before == "SlowedDown" else limit * _SLACK
    slow = [row for row in rows if row.slowdown and row.slowdown > bound]
    return Finding(True, "SlowedDown", f"{_who(slow)}: slower than maxSlowdown {limit} allows") if slow else None


def _scaled(found: Usage) -> Finding | None:
    """Return the finding that requests on a GPU add up to more than the GPU, for the pod that loses most.

    Pods that end do not count: after a rolling update, the old one still has its slot while it ends.
    """
    rows = []
    for device, row in found.slots:
        if row.pod is None or row.compute_request is None or _ends(row, found):
            continue
        rest = [each for each in device.status.held_slots or () if not _ends(each, found)]
        held = [each for each in rest if each.priority is Priority.BE]
        asked = sum(each.compute_request.milli for each in held if each.compute_request)
        if asked > 1_000:
            gets = due({each.name: _claim(each) for each in held})[row.name]
            rows.append((gets - row.compute_request.milli / 1_000, row.pod.name, device.name, row, asked, gets))
    if not rows:
        return None
    _, pod, name, row, asked, gets = min(rows, key=lambda each: each[:3])
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    what = f"pod {pod}{more} asks for {row.compute_request} of {name}, whose be slots ask for {asked / 1_000:g} in all"
    gets_less = f"it gets {gets:.3g} of the time that hp leaves, while all of them want it"
    action = "lower compute.request, or delete the pod so that it can start on another GPU"
    return Finding(True, "RequestsScaled", f"{what}: {gets_less}; {action}")


def _ends(row: ReportedSlot, found: Usage) -> bool:
    return row.pod is not None and Named(row.pod.namespace, row.pod.name) in found.leaving


def _claim(row: ReportedSlot) -> Claim:
    request, limit = row.compute_request, row.compute_limit
    return Claim(request.milli / 1_000 if request else 0.0, limit.milli / 1_000 if limit else 1.0)


def may_park(record: ShareRecord) -> bool:
    """Return whether the share lets the agent park its slots."""
    memory = record.share.spec.memory if record.share else None
    return memory is not None and memory.oversubscribe is Oversubscribe.PARK


def parked(found: Usage) -> Finding:
    """Return whether processes of the pods have left the GPU's memory; the longest parked pod is named."""
    rows = sorted(
        (row.parked.since, row.pod.name, row.parked.memory) for _, row in found.slots if row.parked and row.pod
    )
    if not rows:
        return Finding(False, "NoneParked", "no slot of these pods is parked")
    since, pod, memory = rows[0]
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    where = f"{Memory.of_bytes(memory)} of the GPU's memory are in the pod's host memory since {since}"
    return Finding(
        True, "SlotsParked", f"a slot of pod {pod}{more} is parked: {where}; its programs wait until they return"
    )


def not_enforced(record: ShareRecord, found: Usage) -> Finding:
    """Return whether the share sets fields that have no effect."""
    if record.share is None:
        return Finding(None, REASON_UNREADABLE, "the share cannot be read")
    reported = enforcement.not_enforced(record.share.spec, found)
    return (
        Finding(True, *reported) if reported else Finding(False, "Enforced", "every field of the share has its effect")
    )


def _who(rows: Sequence[ReportedClient]) -> str:
    """Describe the first process of the rows, with the number of the others."""
    row = rows[0]
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    return f"process {row.process_id} ({row.command or 'unnamed'}) of pod {row.pod.name if row.pod else '?'}{more}"
