"""Keeps pods away from nodes where they could never start, by a required node affinity to labels of the operator.

**GPUs that are too few or too small.** The scheduler counts slots and knows no GPUs. For a pod that needs several GPUs
for one container, it would choose a node where two of the slots are on one GPU; such a pod can never start. For a pod
that reserves more memory than any known GPU has, it would choose any node. The affinity keeps such pods pending, and
the scheduler says why. An autoscaler can then start a node that has the labels in its template.

This affinity is an upper bound: it knows neither free slots nor free memory. If the node has enough GPUs, but fewer
with a free slot, the device plugin refuses the start.

**A rolling update of hp.** During a rolling update the node has one hp slot more (docs/rolling-updates.md), which only
the workload may take. The scheduler counts slots and would give it to any hp pod. So every hp pod requires a node
without the label of a rollout; a pod of a workload also accepts nodes whose label names its revision of the workload.

**Nodes of two kinds.** Where each node chooses who gives its slots, a pod can start only where that is the program
that admission chose (`choosing`). Without the affinity, the scheduler would make a claim of its own for a pod that asks
for slots as a resource, on a node with a DRA driver.

A pod that names its node has no scheduler, and the kubelet fails a pod that does not match its own affinity. So such a
pod gets none.

Rejected: to refuse a pod that reserves more memory than any known GPU has. A node group at zero may have larger GPUs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from orion.crds.allocation import Giver
from orion.crds.annotations import ALLOCATION, GPU_MEMORY, GPUS, ROLLOUT, ROLLOUT_ENDS
from orion.crds.quantities import Memory
from orion.crds.workloads import Revision

Expression = Mapping[str, Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_MIB = 1 << 20


def require_nodes(spec: dict[str, Any], amounts: Mapping[str, int], memory: Memory | None) -> list[str]:
    """Add the affinity to a pod's spec; return what changed.

    Args:
        spec: the pod's spec as parsed JSON; its fields are replaced, and the values of its fields are not changed.
        amounts: the number of slots of each container.
        memory: the memory that a GPU must have for each slot; None: any GPU will do.
    """
    found = []
    gpus = max(amounts.values())
    if gpus > 1 and _require(spec, [_at_least(GPUS, gpus)]):
        found.append(f"the pod needs a node with at least {gpus} GPUs, by a node affinity to label {GPUS}")
    if memory is not None and _require(spec, [_at_least(GPU_MEMORY, -(-memory.bytes // _MIB))]):
        found.append(f"the pod needs a node with GPUs of at least {memory}, by a node affinity to label {GPU_MEMORY}")
    return found


def leave_rollouts_alone(spec: dict[str, Any], revision: Revision) -> list[str]:
    """Add the affinity to nodes without a rolling update of others to an hp pod's spec; return what changed.

    Args:
        spec: as in `require_nodes`.
        revision: the pod's workload, and its revision of it.
    """
    none: Expression = {"key": ROLLOUT, "operator": "DoesNotExist"}
    own: Expression = {"key": ROLLOUT, "operator": "In", "values": [str(revision), f"{ROLLOUT_ENDS}{revision}"]}
    if not _require(spec, [none, own] if revision.workload else [none]):
        return []
    return [f"the pod leaves slots for rolling updates to others, by a node affinity to label {ROLLOUT}"]


def keep_to(spec: dict[str, Any], giver: Giver) -> list[str]:
    """Add the affinity to nodes of one program to a pod's spec; return what changed. Nodes without label count, too.

    Args:
        spec: as in `require_nodes`.
        giver: the program that gives the pod its slots.
    """
    operator = "In" if giver is Giver.DRA else "NotIn"
    if not _require(spec, [{"key": ALLOCATION, "operator": operator, "values": [Giver.DRA.value]}]):
        return []
    return [f"the pod needs a node where {giver.program} gives slots, by a node affinity to label {ALLOCATION}"]


def tolerate(spec: dict[str, Any], taints: Sequence[str]) -> list[str]:
    """Add tolerations of node taints to a pod's spec; return what changed.

    Args:
        spec: as in `require_nodes`.
        taints: the keys of the taints.
    """
    before = spec.get("tolerations") or []
    missing = [{"key": key, "operator": "Exists"} for key in taints if not any(_covers(each, key) for each in before)]
    if not missing:
        return []
    spec["tolerations"] = [*before, *missing]
    return [f"the pod tolerates the taint {each['key']} of nodes" for each in missing]


def _covers(toleration: Mapping[str, Any], key: str) -> bool:
    """Return whether a toleration tolerates the taints of a key that keep pods away, whatever their value is."""
    is_for_key = toleration.get("key") in (None, "", key) and toleration.get("operator") == "Exists"
    return is_for_key and toleration.get("effect") in (None, "", "NoSchedule")


def _at_least(label: str, least: int) -> Expression:
    return {"key": label, "operator": "Gt", "values": [str(least - 1)]}


def _require(spec: dict[str, Any], alternatives: Sequence[Expression]) -> bool:
    """Require one of these expressions of the pod's node, besides what is required; return whether the spec changed."""
    if spec.get("nodeName"):
        return False
    affinity = dict(spec.get("affinity") or {})
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    required = dict(of_nodes.get(_REQUIRED) or {})
    before = required.get("nodeSelectorTerms") or [{"matchExpressions": []}]
    # The terms are alternatives. An empty term of the pod's owner matches no node, and must stay empty.
    terms = [each for term in before for each in (_with(term, alternatives) if term else [term])]
    if terms == before:
        return False
    required["nodeSelectorTerms"], of_nodes[_REQUIRED], affinity["nodeAffinity"] = terms, required, of_nodes
    spec["affinity"] = affinity
    return True


def _with(term: Mapping[str, Any], alternatives: Sequence[Expression]) -> list[Mapping[str, Any]]:
    """Return a term once for each expression; the term itself if it has one of them already."""
    expressions = term.get("matchExpressions") or []
    if any(each in expressions for each in alternatives):
        return [term]
    return [{**term, "matchExpressions": [*expressions, each]} for each in alternatives]
