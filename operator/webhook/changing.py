"""Writes what was decided into a copy of a pod: slots or a claim, the hook, the placement, and Orion's marks.

Only changed parts are copied. `patching` skips parts that are the same object before and after.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orion.crds.allocation import Giver
from orion.crds.annotations import PINNED_SHARE, PRIORITY, PRIORITY_LABEL
from orion.crds.claims import SHAPE
from orion.crds.policy import Priority
from orion.crds.quantities import Memory
from orion.crds.share import GPUShare
from orion.crds.workloads import Revision
from orion.operator.webhook import claiming, placement, preloading, slots
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.pods import Pod, containers_of


@dataclass(frozen=True)
class Wanted:
    """What was decided about a pod.

    Args:
        pod: the pod.
        priority: its priority.
        amounts: the number of slots by container name.
        by_hand: whether somebody wrote the pod's claim, so that its containers have their slots already.
        share: the GPUShare that governs the pod; None: none does.
        memory: the memory that a GPU must have for each slot; None: any GPU will do.
        revision: the pod's workload, and its revision of it.
        giver: the program that gives the pod its slots.
        pins: whether the pod must be kept to nodes of that program, because there are others.
    """

    pod: Pod
    priority: Priority
    amounts: Mapping[str, int]
    by_hand: bool
    share: GPUShare | None
    memory: Memory | None
    revision: Revision
    giver: Giver
    pins: bool


def changed(plain: Mapping[str, Any], wanted: Wanted, defaults: Defaults) -> tuple[dict[str, Any], list[str]]:
    """Return the pod as it should be, and a sentence for each change.

    Args:
        plain: the pod as parsed JSON; it is not changed.
        wanted: what was decided.
        defaults: the settings of the installation.

    Raises:
        Refusal: no claim can give what the pod needs, or the hook cannot be put first.
    """
    after = dict(plain)
    spec = after["spec"] = dict(after["spec"])
    if wanted.by_hand:
        claiming.refuse_named_node(wanted.pod)
        changes = _change_containers(spec, wanted, lambda container, name: [], defaults)
        changes += placement.tolerate(spec, defaults.gpu_taints)
    elif wanted.giver is Giver.DRA:
        changes = _claim(after, wanted, defaults)
    else:
        changes = claiming.remove(after) if claiming.amounts_before(wanted.pod) else []
        changes += _add_slots(spec, wanted, defaults)
    if wanted.priority is Priority.HP:
        changes += placement.leave_rollouts_alone(spec, wanted.revision)
    if wanted.pins and not wanted.by_hand:
        changes += placement.keep_to(spec, wanted.giver)
    changes += _choose_runtime(wanted.pod, spec, defaults)
    name = wanted.share.metadata.name if wanted.share else ""
    changes += _mark(after, "annotations", {PRIORITY: str(wanted.priority), PINNED_SHARE: name})
    return after, changes + _mark(after, "labels", {PRIORITY_LABEL: str(wanted.priority)})


def _add_slots(spec: dict[str, Any], wanted: Wanted, defaults: Defaults) -> list[str]:
    """Let containers ask for slots as resources, and keep the pod away from nodes where it cannot start."""

    def write(container: dict[str, Any], name: str) -> list[str]:
        return slots.write(container, wanted.priority, wanted.amounts[name])

    changes = _change_containers(spec, wanted, write, defaults)
    return changes + placement.require_nodes(spec, wanted.amounts, wanted.memory)


def _claim(after: dict[str, Any], wanted: Wanted, defaults: Defaults) -> list[str]:
    """Give containers their slots by a claim. The scheduler then knows where the pod can start."""
    claiming.refuse_named_node(wanted.pod)
    claim = claiming.claim_for(wanted.pod, wanted.priority, wanted.amounts, wanted.share, defaults.spread)

    def write(container: dict[str, Any], name: str) -> list[str]:
        return claiming.write(container, claim.requests[name], wanted.amounts[name])

    changes = _change_containers(after["spec"], wanted, write, defaults)
    changes += claiming.name_template(after["spec"], claim.shape)
    changes += placement.tolerate(after["spec"], defaults.gpu_taints)
    return changes + _mark(after, "annotations", {SHAPE: claim.shape.as_json()})


def _change_containers(
    spec: dict[str, Any], wanted: Wanted, write: Callable[[dict[str, Any], str], list[str]], defaults: Defaults
) -> list[str]:
    """Write slots and the hook into the containers that have slots."""
    changes = []
    for entry in containers_of(wanted.pod.spec):
        if entry.name in wanted.amounts:
            spec[entry.list] = list(spec[entry.list])
            container = spec[entry.list][entry.index] = dict(spec[entry.list][entry.index])
            reported = write(container, entry.name)
            reported += preloading.preload(entry, container, defaults)
            changes += [f"{entry} {each}" for each in reported]
    return changes


def _choose_runtime(pod: Pod, spec: dict[str, Any], defaults: Defaults) -> list[str]:
    """Set the runtime class that injects GPUs, unless the pod names a class."""
    if not defaults.runtime_class or pod.spec.runtime_class_name:
        return []
    spec["runtimeClassName"] = defaults.runtime_class
    return [f"the pod's runtime class is {defaults.runtime_class}, because the pod names none"]


def _mark(after: dict[str, Any], what: str, wanted: Mapping[str, str]) -> list[str]:
    """Write annotations or labels; return what has changed."""
    marks = (after.get("metadata") or {}).get(what) or {}
    changed = [name for name, value in wanted.items() if marks.get(name) != value]
    if changed:
        metadata = after["metadata"] = dict(after.get("metadata") or {})
        metadata[what] = {**marks, **wanted}
    return [f"{what.removesuffix('s')} {name} is set" for name in changed]
