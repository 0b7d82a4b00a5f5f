"""GPUs whose node is gone: no agent will say any more that they are, so the operator does.

Until somebody does, the status of before stands: pods on the GPU, clients, health. And an agent that finds the GPU in
its own node may not take it over, since whoever runs on one node must not take the GPUs of another
(charts/orion/files/agent-policy.yaml).

Refused: to delete the GPUDevice, with what people have written into its spec.
"""

from datetime import datetime
from typing import Any

from orion.crds.conditions import ConditionType, with_condition
from orion.crds.device import GPUDeviceStatus

NODE_GONE = "NodeGone"

OF_THE_PAST = (
    *("slots", "heldSlots", "hpBusyRatio", "clientCount", "clients", "unmanagedProcessCount", "unmanaged", "policy"),
)
""" Fields of a GPUDevice's status that are true only while an agent says so. """


def orphan_status(status: GPUDeviceStatus, now: datetime) -> dict[str, Any]:
    """Return the merge patch of the status of a GPU whose node is gone."""
    message = f"node {status.node} is gone; the GPU belongs to the node whose agent finds it next"
    conditions = status.conditions or []
    for kind in (ConditionType.READY, ConditionType.HOOK_INJECTED):
        conditions = with_condition(conditions, kind, None, NODE_GONE, message, status.observed_generation, now)
    return {
        **dict.fromkeys(OF_THE_PAST),
        "health": "Unknown",
        "conditions": [condition.plain() for condition in conditions],
    }
