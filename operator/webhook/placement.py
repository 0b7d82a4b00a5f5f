"""Keeps pods that need several GPUs for one container away from nodes with fewer GPUs.

The scheduler counts slots and knows no GPUs, so it would choose a node where two of the slots are on one GPU. Such a
pod can never start. A required node affinity to nodes with enough GPUs keeps the pod pending instead, and the scheduler
says why. The operator writes the label and counts the GPUs that take pods.

The affinity is an upper bound: it knows no free slots. If the node has enough GPUs, but fewer with a free slot, the
device plugin refuses the start.

A pod that names its node has no scheduler, and the kubelet fails a pod that does not match its own affinity. So such a
pod gets none.
"""

from collections.abc import Mapping
from typing import Any

from orion.crds.annotations import GPUS

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def require_gpus(spec: dict[str, Any], amounts: Mapping[str, int]) -> list[str]:
    """Add the affinity to a pod's spec; return what changed.

    Args:
        spec: the pod's spec as parsed JSON; its fields are replaced, and the values of its fields are not changed.
        amounts: the number of slots of each container.
    """
    needed = max(amounts.values())
    if needed < 2 or spec.get("nodeName"):
        return []
    affinity = dict(spec.get("affinity") or {})
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    required = dict(of_nodes.get(_REQUIRED) or {})
    before = required.get("nodeSelectorTerms") or [{"matchExpressions": []}]
    enough = {"key": GPUS, "operator": "Gt", "values": [str(needed - 1)]}
    # The terms are alternatives. An empty term of the pod's owner matches no node, and must stay empty.
    terms = [_with(term, enough) if term else term for term in before]
    if terms == before:
        return []
    required["nodeSelectorTerms"], of_nodes[_REQUIRED], affinity["nodeAffinity"] = terms, required, of_nodes
    spec["affinity"] = affinity
    return [f"the pod needs a node with at least {needed} GPUs, by a node affinity to label {GPUS}"]


def _with(term: Mapping[str, Any], expression: Mapping[str, Any]) -> Mapping[str, Any]:
    expressions = term.get("matchExpressions") or []
    return term if expression in expressions else {**term, "matchExpressions": [*expressions, expression]}
