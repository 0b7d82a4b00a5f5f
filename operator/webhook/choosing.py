"""Chooses which program gives a pod its slots, where each node chooses between device plugin and DRA driver.

A pod whose GPUShare reserves time or memory or chooses devices gets a claim, if some node gives claims: only then does
the scheduler keep what the GPUShare asks for. All other pods get what the installation's default says. A node selector
or affinity of the pod that leaves only nodes of one program comes before both: nobody else could give slots there.

The choice is made once, when the pod is created: the pod's resources say it then, and they cannot change.

Rejected: to let the pod ask for a resource and leave the rest to the scheduler, which makes a claim where no device
plugin gives the resource (`extendedResourceName`). Such a claim has no amounts, and an hp pod would get a be slot.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from orion.crds.allocation import Allocation, Giver
from orion.crds.annotations import ALLOCATION
from orion.crds.share import GPUShare
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.pods import PodSpec

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def choose(spec: PodSpec, share: GPUShare | None, some_claims: bool, defaults: Defaults) -> tuple[Giver, str]:
    """Return which program gives a pod its slots, and why; no reason: there is no choice.

    Args:
        spec: the pod's spec.
        share: the GPUShare that governs the pod; None: none does.
        some_claims: whether a node is known whose DRA driver gives slots.
        defaults: the settings of the installation.
    """
    if defaults.allocation is not Allocation.BY_NODE:
        return Giver(defaults.allocation), ""
    left = {_giver(value) for value in (*Giver, None) if _takes(spec, value)}
    if len(left) == 1:
        (giver,) = left
        return giver, f"{giver.program} gives the pod its slots: it selects nodes by label {ALLOCATION}"
    if spec.node_name:
        return Giver.DEVICE_PLUGIN, "the device plugin gives the pod its slots: it names its node, so no scheduler does"
    asked = next(_only_by_claims(share), "") if share is not None else ""
    if asked and some_claims:
        why = f"GPUShare {share.metadata.name if share else ''} has {asked}, which only claims keep"
        return Giver.DRA, f"the DRA driver gives the pod its slots: {why}"
    giver = defaults.by_node_default
    return giver, f"{giver.program} gives the pod its slots: that is the installation's default"


def _giver(label: str | None) -> Giver:
    return Giver(label) if label else Giver.DEVICE_PLUGIN


def _only_by_claims(share: GPUShare) -> Iterator[str]:
    """Yield the fields of a share that the scheduler keeps only for pods with claims."""
    if share.spec.devices is not None:
        yield "spec.devices"
    if share.spec.compute is not None and share.spec.compute.request is not None:
        yield "spec.compute.request"
    if share.spec.memory is not None and share.spec.memory.request is not None:
        yield "spec.memory.request"


def _takes(spec: PodSpec, label: str | None) -> bool:
    """Return whether the pod may go to a node with this value of the label, as far as the label decides."""
    selected = (spec.node_selector or {}).get(ALLOCATION, label)
    terms = (((spec.affinity or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()
    return selected == label and (not terms or any(_fits(term, label) for term in terms))


def _fits(term: Mapping[str, Any], label: str | None) -> bool:
    own = [each for each in term.get("matchExpressions") or () if each.get("key") == ALLOCATION]
    return all(_fulfils(each, label) for each in own)


def _fulfils(expression: Mapping[str, Any], label: str | None) -> bool:
    named = label in (expression.get("values") or ())
    return {
        "In": named,
        "NotIn": not named,
        "Exists": label is not None,
        "DoesNotExist": label is None,
    }.get(str(expression.get("operator")), False)
