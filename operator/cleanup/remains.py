"""Computes, for one object, the patch that removes what Orion wrote into it.

GPUDevices and GPUShares are not deleted, because people wrote their `spec` (a cordon, a mode) and a later installation
uses it again. A GPUDevice also keeps the name of its last node. Conditions become Unknown.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from orion.api_server.merging import merge_patch
from orion.crds.annotations import ALLOCATION, WRITTEN
from orion.crds.conditions import ConditionType, with_condition
from orion.operator.reconciler.orphans import FIELDS_OF_LIVE_AGENTS, MEMORY_OF_LIVE_AGENTS
from orion.operator.reconciler.share_status import conditions_of

UNINSTALLED = "Uninstalled"
""" The reason that the cleanup writes into every condition. """
MESSAGE = "Orion has been uninstalled, so nothing updates this status"
_OF_SHARES = ("pods", "gpus", "clientCounts", "clients", "slots")

Body = Mapping[str, Any]
Patch = dict[str, Any]


def node_patch(node: Body) -> Patch | None:
    """Return the merge patch that removes a node's labels orion.gpu/...; None: the node has no such label.

    The label of the node's allocation stays, because people write it. The patch names every other label with the
    prefix, because an older release may have written labels that this release does not know. No release has written
    annotations of nodes.
    """
    labels = node["metadata"].get("labels") or {}
    ours = {name: None for name in labels if name.startswith(WRITTEN) and name != ALLOCATION}
    return {"metadata": {"labels": ours}} if ours else None


def capacity_patch(node: Body) -> Patch | None:
    """Return the patch of a node's status that removes Orion's resources; None: the node has none, or one is not 0.

    When a device plugin is gone, the kubelet keeps the plugin's resources. For five minutes it reports the old amounts,
    and would write them again after a removal. After that it reports 0 for ever, also after a restart of the kubelet.
    """
    status = node.get("status") or {}
    counted = {
        field: {name: amount for name, amount in (status.get(field) or {}).items() if name.startswith(WRITTEN)}
        for field in ("capacity", "allocatable")
    }
    if not counted["capacity"] or {*counted["capacity"].values(), *counted["allocatable"].values()} != {"0"}:
        return None
    return {"status": {field: dict.fromkeys(amounts) for field, amounts in counted.items() if amounts}}


def device_patch(device: Body, now: datetime) -> Patch | None:
    """Return the merge patch of a GPUDevice's status; None: nothing has to change."""
    memory = (device.get("status") or {}).get("memory") or {}
    lasting = {name: amount for name, amount in memory.items() if name not in MEMORY_OF_LIVE_AGENTS}
    replaced = {"health": "Unknown"} | ({"memory": lasting} if memory else {})
    return _status_patch(device, FIELDS_OF_LIVE_AGENTS, replaced, now)


def share_patch(share: Body, now: datetime) -> Patch | None:
    """Return the merge patch of a GPUShare's status; None: nothing has to change."""
    return _status_patch(share, _OF_SHARES, {}, now)


def _status_patch(body: Body, dropped: tuple[str, ...], replaced: Patch, now: datetime) -> Patch | None:
    """Return the patch that drops and replaces fields of a status, and sets every condition to Unknown.

    An empty status stays empty. A condition type that this version does not know is removed: whether Unknown is a valid
    status of such a condition is not known.
    """
    before = dict(body.get("status") or {})
    if not before:
        return None
    generation = body["metadata"].get("generation")
    known = [each for each in conditions_of(before) if each.type in set(ConditionType)]
    conditions = known
    for kind in (ConditionType.READY, *(ConditionType(each.type) for each in known)):
        conditions = with_condition(conditions, kind, None, UNINSTALLED, MESSAGE, generation, now)
    after = {name: value for name, value in before.items() if name not in dropped} | replaced
    after["conditions"] = [condition.plain() for condition in conditions]
    patch = merge_patch(before, after)
    return {"status": patch} if patch else None
