"""The status that a share is to have."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from orion.crds.clients import ClientRow
from orion.crds.conditions import Condition, ConditionType, with_condition
from orion.crds.errors import Unreadable
from orion.crds.share_status import NAMES_MAX, ROWS_MAX, ClientCounts, GPUShareStatus, PodCounts
from orion.operator.reconciler import share_conditions
from orion.operator.reconciler.records import ShareRecord
from orion.operator.reconciler.share_conditions import Finding, Governed
from orion.operator.reconciler.usage import STOPPED, Usage, worst_first


def conditions_of(status: dict[str, Any]) -> list[Condition]:
    """Return a status's conditions; one that cannot be read is left out, and so made again."""
    found = []
    for plain in status.get("conditions") or ():
        try:
            found.append(Condition.read(plain))
        except Unreadable:
            continue
    return found


def share_status(record: ShareRecord, governed: Governed, found: Usage, now: datetime) -> GPUShareStatus:
    """Return the status that a share is to have.

    Args:
        record: the share; the times of conditions that stay as they are come from its status.
        governed: its pods.
        found: what node agents say of them.
        now: the time of conditions that change.
    """
    before = conditions_of(record.status)
    rows = worst_first(found.clients)
    findings = {
        ConditionType.READY: share_conditions.ready(record, governed),
        ConditionType.HOOK_INJECTED: share_conditions.hook_injected(found),
        ConditionType.POLICY_CONFLICT: share_conditions.policy_conflict(record, found),
        ConditionType.DEGRADED: share_conditions.degraded(record, found, rows, before),
    }
    return GPUShareStatus(
        observed_generation=record.generation,
        conditions=_conditions(before, findings, record.generation, now),
        pods=_pods(governed),
        gpus=len(found.devices),
        client_counts=_clients(rows, found),
        clients=rows[:ROWS_MAX] or None,
    )


def _conditions(
    before: Sequence[Condition], findings: dict[ConditionType, Finding], generation: int, now: datetime
) -> list[Condition]:
    after = list(before)
    for kind, finding in findings.items():
        after = with_condition(after, kind, finding.so, finding.reason, finding.message, generation, now)
    return after


def _pods(governed: Governed) -> PodCounts:
    return PodCounts(
        governed=len(governed.pods),
        running=sum(pod.running for pod in governed.pods),
        granted=len(governed.pods) - len(governed.without_grant),
        unannotated=len(governed.unannotated),
        unannotated_names=governed.unannotated[:NAMES_MAX] or None,
    )


def _clients(rows: Sequence[ClientRow], found: Usage) -> ClientCounts:
    return ClientCounts(
        total=found.processes,
        stopped=sum(row.state == STOPPED for row in rows),
        troubled=sum(row.message is not None for row in rows),
        unmanaged=len(found.unmanaged),
    )
