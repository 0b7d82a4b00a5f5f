"""Handles GPUDevices whose node is gone. If people have written the spec, the operator sets the status to Unknown.

Otherwise the last status would stay: its pods, clients and health. And if the GPU is moved to another node, the agent
of that node could not write the GPUDevice, because an agent must not write GPUs that belong to another node
(charts/orion/files/agent-policy.yaml).

The operator deletes GPUDevices whose spec has the defaults. An autoscaler may remove hundreds of nodes a day. If a node
comes back, or the GPU is moved, the agent that finds the GPU creates an equal GPUDevice.

Rejected: to ask `managedFields` who wrote the spec. A field that somebody has set to its default has no effect, and
other programs remove `managedFields`.
"""

from datetime import datetime
from typing import Any

from orion.crds.conditions import Condition, ConditionType, with_condition
from orion.operator.reconciler.reports import ReportedStatus

NODE_GONE = "NodeGone"

FIELDS_OF_LIVE_AGENTS = (
    *("slots", "heldSlots", "hpBusyRatio", "clientCount", "clients", "unmanagedProcessCount", "unmanaged", "policy"),
    *("allocation", "time"),
)
""" Fields of a GPUDevice's status that are valid only while an agent updates them. """
MEMORY_OF_LIVE_AGENTS = ("used", "reserved", "reserve", "borrowed", "returnable")
""" The same in its `memory`: only the total lasts. """


def orphan_status(status: ReportedStatus, now: datetime) -> dict[str, Any]:
    """Return the merge patch of the status of a GPU whose node is gone."""
    message = f"node {status.node} is gone; the GPU belongs to the node whose agent finds it next"
    conditions = [Condition.model_validate(each, from_attributes=True) for each in status.conditions or ()]
    for kind in (ConditionType.READY, ConditionType.HOOK_INJECTED):
        conditions = with_condition(conditions, kind, None, NODE_GONE, message, status.observed_generation, now)
    return {
        **dict.fromkeys(FIELDS_OF_LIVE_AGENTS),
        **({"memory": dict.fromkeys(MEMORY_OF_LIVE_AGENTS)} if status.memory else {}),
        "health": "Unknown",
        "conditions": [condition.plain() for condition in conditions],
    }
