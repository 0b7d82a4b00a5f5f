"""Computes the desired status of a share."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from orion.crds.conditions import Condition, ConditionType, with_condition
from orion.crds.share_status import NAMES_MAX, ROWS_MAX, ClientCounts, GPUShareStatus, PodCounts
from orion.crds.slot_usage import ShareSlotRow
from orion.errors import Unreadable
from orion.operator.reconciler import share_conditions
from orion.operator.reconciler.records import ShareRecord
from orion.operator.reconciler.reports import ReportedClient, client_row, slot_row
from orion.operator.reconciler.share_conditions import Finding, Governed
from orion.operator.reconciler.usage import STOPPED, Usage, least_served_first, parked_pods, without_grant, worst_first


def conditions_of(status: dict[str, Any]) -> list[Condition]:
    """Return the conditions in a status. Conditions that cannot be read are left out; the caller then replaces them."""
    found = []
    for plain in status.get("conditions") or ():
        try:
            found.append(Condition.read(plain))
        except Unreadable:
            continue
    return found


def share_status(
    record: ShareRecord, before: Sequence[Condition], governed: Governed, found: Usage, now: datetime
) -> GPUShareStatus:
    """Return the desired status of a share.

    Args:
        record: the share.
        before: the conditions in its status. Those that do not change keep their transition times.
        governed: the pods of the share.
        found: what the node agents report about these pods.
        now: the transition time of conditions that change.
    """
    clients = worst_first(found.clients)
    rows = [row for _, row in clients]
    missing = len(without_grant(record, governed.pods, found).difference(governed.not_admitted))
    findings = {
        ConditionType.READY: share_conditions.ready(record, governed, missing, found),
        ConditionType.HOOK_INJECTED: share_conditions.hook_injected(found),
        ConditionType.POLICY_CONFLICT: share_conditions.policy_conflict(record, found),
        ConditionType.DEGRADED: share_conditions.degraded(record, found, rows, before),
        ConditionType.NOT_ENFORCED: share_conditions.not_enforced(record, found),
    }
    parked = share_conditions.parked(found)
    if parked.holds or share_conditions.may_park(record) or any(each.type == ConditionType.PARKED for each in before):
        findings[ConditionType.PARKED] = parked
    return GPUShareStatus(
        observed_generation=record.generation,
        conditions=_conditions(before, findings, record.generation, now),
        pods=_pods(governed, missing, found),
        gpus=len(found.devices),
        client_counts=_clients(rows, found),
        clients=[client_row(row, gpu.status.node, gpu.status.uuid) for gpu, row in clients[:ROWS_MAX]] or None,
        slots=_slots(found) or None,
    )


def _slots(found: Usage) -> list[ShareSlotRow]:
    rows = least_served_first(found.slots)[:ROWS_MAX]
    return [slot_row(slot, device.status.node, device.status.uuid) for device, slot in rows]


def _conditions(
    before: Sequence[Condition], findings: dict[ConditionType, Finding], generation: int, now: datetime
) -> list[Condition]:
    after = list(before)
    for kind, finding in findings.items():
        after = with_condition(after, kind, finding.holds, finding.reason, finding.message, generation, now)
    return after


def _pods(governed: Governed, missing: int, found: Usage) -> PodCounts:
    return PodCounts(
        governed=len(governed.pods),
        running=sum(pod.running for pod in governed.pods),
        parked=len(parked_pods(found.slots)),
        granted=len(governed.pods) - len(governed.not_admitted) - missing,
        unannotated=len(governed.unannotated),
        unannotated_names=governed.unannotated[:NAMES_MAX] or None,
    )


def _clients(rows: Sequence[ReportedClient], found: Usage) -> ClientCounts:
    return ClientCounts(
        total=found.processes,
        stopped=sum(row.state == STOPPED for row in rows),
        troubled=sum(row.message is not None for row in rows),
        unmanaged=len(found.unmanaged),
    )
