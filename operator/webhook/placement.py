"""Keeps pods away from nodes whose GPUs are too few or too small for them, by a required node affinity.

The scheduler counts slots and knows no GPUs. For a pod that needs several GPUs for one container, it would choose a
node where two of the slots are on one GPU; such a pod can never start. For a pod that reserves more memory than any
known GPU has, it would choose any node. The affinity keeps such pods pending instead, and the scheduler says why. An
autoscaler can then start a node that has the labels in its template. The operator writes the labels.

The affinity is an upper bound: it knows neither free slots nor free memory. If the node has enough GPUs, but fewer with
a free slot, the device plugin refuses the start.

A pod that names its node has no scheduler, and the kubelet fails a pod that does not match its own affinity. So such a
pod gets none.

Rejected: to refuse a pod that reserves more memory than any known GPU has. A node group at zero may have larger GPUs.
"""

from collections.abc import Mapping
from typing import Any

from orion.crds.annotations import GPU_MEMORY, GPUS
from orion.crds.quantities import Memory

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_MIB = 1 << 20


def require_nodes(spec: dict[str, Any], amounts: Mapping[str, int], memory: Memory | None) -> list[str]:
    """Add the affinity to a pod's spec; return what changed.

    Args:
        spec: the pod's spec as parsed JSON; its fields are replaced, and the values of its fields are not changed.
        amounts: the number of slots of each container.
        memory: the memory that a GPU must have for each slot; None: any GPU will do.
    """
    if spec.get("nodeName"):
        return []
    found = []
    gpus = max(amounts.values())
    if gpus > 1 and _require(spec, GPUS, gpus):
        found.append(f"the pod needs a node with at least {gpus} GPUs, by a node affinity to label {GPUS}")
    if memory is not None and _require(spec, GPU_MEMORY, -(-memory.bytes // _MIB)):
        found.append(f"the pod needs a node with GPUs of at least {memory}, by a node affinity to label {GPU_MEMORY}")
    return found


def _require(spec: dict[str, Any], label: str, least: int) -> bool:
    """Require nodes whose label is at least this number; return whether the spec has changed."""
    affinity = dict(spec.get("affinity") or {})
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    required = dict(of_nodes.get(_REQUIRED) or {})
    before = required.get("nodeSelectorTerms") or [{"matchExpressions": []}]
    enough = {"key": label, "operator": "Gt", "values": [str(least - 1)]}
    # The terms are alternatives. An empty term of the pod's owner matches no node, and must stay empty.
    terms = [_with(term, enough) if term else term for term in before]
    if terms == before:
        return False
    required["nodeSelectorTerms"], of_nodes[_REQUIRED], affinity["nodeAffinity"] = terms, required, of_nodes
    spec["affinity"] = affinity
    return True


def _with(term: Mapping[str, Any], expression: Mapping[str, Any]) -> Mapping[str, Any]:
    expressions = term.get("matchExpressions") or []
    return term if expression in expressions else {**term, "matchExpressions": [*expressions, expression]}
