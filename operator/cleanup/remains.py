"""What an object still says for Orion, and the patch that ends it.

A GPU and a share keep what people wrote (`spec`) and where a GPU was last; what was true of them is not known any more,
and says so. They are not deleted: a cordon and a mode are people's, and the next Orion finds them.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from orion.api_server.merging import merge_patch
from orion.crds.annotations import WRITTEN
from orion.crds.conditions import ConditionType, with_condition
from orion.operator.reconciler.orphans import OF_THE_PAST
from orion.operator.reconciler.share_status import conditions_of

UNINSTALLED = "Uninstalled"
""" The reason of every condition. """
MESSAGE = "Orion has been uninstalled; nobody looks any more"
_OF_SHARES = ("pods", "gpus", "clientCounts", "clients")

Body = Mapping[str, Any]
Patch = dict[str, Any]


def node_patch(node: Body) -> Patch | None:
    """Return the merge patch that takes a node's labels orion.gpu/... away; None: it has none.

    Of every release: an older one may have written others than this one does. None has written annotations of nodes.
    """
    ours = {name: None for name in node["metadata"].get("labels") or {} if name.startswith(WRITTEN)}
    return {"metadata": {"labels": ours}} if ours else None


def capacity_patch(node: Body) -> Patch | None:
    """Return the merge patch of a node's status that takes resources away of which it has none; None: it names none.

    A kubelet leaves a resource of a plugin that has gone: with as many as there were for five minutes, during which it
    would write them again, with 0 for ever after, its own restarts included.
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
    """Return the merge patch of a GPUDevice's status; None: it says nothing that has to end."""
    return _status_patch(device, OF_THE_PAST, {"health": "Unknown"}, now)


def share_patch(share: Body, now: datetime) -> Patch | None:
    """Return the merge patch of a GPUShare's status; None: it says nothing that has to end."""
    return _status_patch(share, _OF_SHARES, {}, now)


def _status_patch(body: Body, of_the_past: tuple[str, ...], said: Patch, now: datetime) -> Patch | None:
    """Return the patch that drops fields, says others, and lets every condition be unknown.

    A status that nobody wrote stays as it is. A condition that this version does not know goes, for nobody can say
    what its being unknown would mean.
    """
    before = dict(body.get("status") or {})
    if not before:
        return None
    generation = body["metadata"].get("generation")
    known = [each for each in conditions_of(before) if each.type in set(ConditionType)]
    conditions = known
    for kind in (ConditionType.READY, *(ConditionType(each.type) for each in known)):
        conditions = with_condition(conditions, kind, None, UNINSTALLED, MESSAGE, generation, now)
    after = {name: value for name, value in before.items() if name not in of_the_past} | said
    after["conditions"] = [condition.plain() for condition in conditions]
    patch = merge_patch(before, after)
    return {"status": patch} if patch else None
