"""What a pod becomes: one pure function of the pod, the shares of its namespace and the GPUs.

No clock, no network, no state, so it can be run again on its own result (other webhooks may run in between, and the API
server then asks again), by `orion explain` without a cluster, and by tests with any pod.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orion.crds.annotations import CONTAINERS, GRANT, PRIORITY, SHARE, PodMarks, read_marks
from orion.crds.errors import Unreadable
from orion.crds.governing import Shares
from orion.crds.grant import granted
from orion.crds.policy import Priority
from orion.crds.quantities import Memory
from orion.crds.share import GPUShare
from orion.operator.webhook import hazards, preloading, slots
from orion.operator.webhook.decisions import Decision, Outcome, Reason, Refusal
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.pods import Pod, Role, places


@dataclass(frozen=True)
class Cluster:
    """What admission knows of the cluster.

    Args:
        shares: the GPUShares of the pod's namespace.
        largest_gpu: the memory of the GPU that has most, in bytes; None: no GPU is known yet.
    """

    shares: Shares = field(default_factory=Shares)
    largest_gpu: int | None = None


def admit(plain: Mapping[str, Any], cluster: Cluster, defaults: Defaults) -> Decision:
    """Return what becomes of a pod that is about to be made.

    Args:
        plain: the pod as JSON has it; it is not changed.
        cluster: shares of its namespace, and GPUs.
        defaults: of the installation.

    Raises:
        pydantic.ValidationError: it is no pod.
    """
    pod = Pod.model_validate(plain)
    try:
        return _admit(plain, pod, cluster, defaults)
    except Refusal as refusal:
        return Decision.refused(plain, refusal)


def admit_ephemeral(plain: Mapping[str, Any], before: Mapping[str, Any] | None, defaults: Defaults) -> Decision:
    """Return what becomes of ephemeral containers that are about to join a pod.

    Args:
        plain: the pod with them.
        before: the pod without.
        defaults: of the installation.
    """
    known = {place.name for place in places(Pod.model_validate(before).spec)} if before else set()
    new = [place for place in places(Pod.model_validate(plain).spec) if place.role is Role.EPHEMERAL]
    try:
        hazards.refuse_containers([place for place in new if place.name not in known], frozenset(), defaults)
    except Refusal as refusal:
        return Decision.refused(plain, refusal)
    return Decision(Outcome.UNCHANGED, Reason.HARMLESS, plain)


def _admit(plain: Mapping[str, Any], pod: Pod, cluster: Cluster, defaults: Defaults) -> Decision:
    marks = _marks(pod)
    asked = slots.asks(pod.spec)
    if marks == PodMarks() and all(ask.priority is None for ask in asked):
        return Decision(Outcome.UNCHANGED, Reason.NOT_OURS, plain)
    share, how = _governing(pod, marks, cluster, defaults)
    priority, why = _priority(marks, asked, share)
    amounts = slots.assign(pod.spec, asked, marks.containers)
    hazards.refuse_hazards(pod, amounts.keys(), defaults)
    _check_memory(share, cluster)
    after = dict(plain)
    changes = _seat(pod, after, priority, amounts, defaults)
    changes += _choose_runtime(pod, after, defaults)
    changes += _annotate(after, {PRIORITY: str(priority), GRANT: granted(priority, share, amounts).as_json()})
    return Decision(
        Outcome.PATCHED if changes else Outcome.UNCHANGED,
        Reason.SLOTS_GIVEN,
        after,
        because=(why, how, *changes),
        cautions=tuple(_cautions(pod, amounts)),
        share=share.metadata.name if share else None,
    )


def _marks(pod: Pod) -> PodMarks:
    try:
        return read_marks(pod.metadata.annotations or {})
    except Unreadable as error:
        raise Refusal(Reason.UNKNOWN_ANNOTATION_VALUE, str(error)) from None


# -- Share and priority ------------------------------------------------------------------------------------------------


def _governing(pod: Pod, marks: PodMarks, cluster: Cluster, defaults: Defaults) -> tuple[GPUShare | None, str]:
    found = cluster.shares.claiming(marks.share, pod.metadata.labels or {})
    if len(found) > 1:
        names = " and ".join(share.metadata.name for share in found)
        raise Refusal(
            Reason.SHARES_OVERLAP,
            f"the GPUShares {names} all select this pod; name one of them in annotation {SHARE}",
            of_cluster=True,
        )
    if found:
        how = f"annotation {SHARE} names it" if marks.share else "its selector matches the pod's labels"
        return found[0], f"the pod is governed by GPUShare {found[0].metadata.name}: {how}"
    if marks.share is not None:
        raise Refusal(
            Reason.SHARE_NOT_FOUND,
            f"annotation {SHARE} names GPUShare {marks.share}, which does not exist in the pod's namespace",
            of_cluster=True,
        )
    if defaults.require_share:
        raise Refusal(
            Reason.SHARE_REQUIRED,
            f"no GPUShare of the namespace selects this pod, and this cluster requires one; make one, or name it in "
            f"annotation {SHARE}",
            of_cluster=True,
        )
    return None, "no GPUShare governs the pod, so the cluster's defaults apply"


def _priority(marks: PodMarks, asked: Sequence[slots.Ask], share: GPUShare | None) -> tuple[Priority, str]:
    """Return what the pod is, from whoever says it; all that say it must say the same."""
    said: list[tuple[Priority, str]] = []
    if marks.priority is not None:
        said.append((marks.priority, f"annotation {PRIORITY} says {marks.priority}"))
    said += [(ask.priority, f"{ask.place} asks for {ask.resource}") for ask in asked if ask.priority is not None]
    if share is not None:
        said.append((share.spec.priority, f"GPUShare {share.metadata.name} has spec.priority {share.spec.priority}"))
    if not said:
        raise Refusal(Reason.NO_PRIORITY, f"annotation {CONTAINERS} needs {PRIORITY} beside it: hp or be")
    priority, why = said[0]
    for other, words in said[1:]:
        if other is priority:
            continue
        if share is None or not words.startswith("GPUShare"):
            raise Refusal(Reason.MIXED_PRIORITIES, f"{why}, but {words}: a pod is either hp or be; make two pods of it")
        raise Refusal(Reason.PRIORITY_CONFLICT, f"{why}, but {words}; make them the same", of_cluster=True)
    return priority, f"the pod is {priority}: {why}"


def _check_memory(share: GPUShare | None, cluster: Cluster) -> None:
    """Refuse a pod that no GPU could hold; while no GPU is known, nobody can say so."""
    memory = share.spec.memory if share else None
    if share is None or memory is None or cluster.largest_gpu is None:
        return
    for what, wanted in (("request", memory.request), ("limit", memory.limit)):
        if wanted is not None and wanted.bytes > cluster.largest_gpu:
            raise Refusal(
                Reason.MEMORY_TOO_LARGE,
                f"GPUShare {share.metadata.name} has a spec.memory.{what} of {wanted} for each slot; the largest GPU "
                f"of the cluster has {Memory.of_bytes(cluster.largest_gpu)}",
                of_cluster=True,
            )


# -- Changes -----------------------------------------------------------------------------------------------------------


def _seat(
    pod: Pod, after: dict[str, Any], priority: Priority, amounts: Mapping[str, int], defaults: Defaults
) -> list[str]:
    """Change containers; only what changes is copied, so that the rest is seen to be the same by looking at it once."""
    changes = []
    spec = after["spec"] = dict(after["spec"])
    for place in places(pod.spec):
        if place.name in amounts:
            spec[place.list] = list(spec[place.list])
            container = spec[place.list][place.index] = dict(spec[place.list][place.index])
            reported = slots.write(container, priority, amounts[place.name])
            reported += preloading.preload(place, container, defaults)
            changes += [f"{place} {each}" for each in reported]
    return changes


def _choose_runtime(pod: Pod, after: dict[str, Any], defaults: Defaults) -> list[str]:
    """Name the runtime that hands over GPUs, unless the pod's owner names one; the spec is a copy already."""
    if not defaults.runtime_class or pod.spec.runtime_class_name:
        return []
    after["spec"]["runtimeClassName"] = defaults.runtime_class
    return [f"the pod's runtime class is {defaults.runtime_class}, as it names none"]


def _annotate(after: dict[str, Any], wanted: Mapping[str, str]) -> list[str]:
    annotations = (after.get("metadata") or {}).get("annotations") or {}
    changed = [name for name, value in wanted.items() if annotations.get(name) != value]
    if changed:
        metadata = after["metadata"] = dict(after.get("metadata") or {})
        metadata["annotations"] = {**annotations, **wanted}
    return [f"annotation {name} is set" for name in changed]


def _cautions(pod: Pod, amounts: Mapping[str, int]) -> Iterable[str]:
    for place in places(pod.spec):
        if place.name not in amounts:
            continue
        own = {variable.name for variable in place.container.env or ()}
        if preloading.PRELOAD not in own and preloading.may_bring(place.container, preloading.PRELOAD):
            yield f"{place}: an {preloading.PRELOAD} that envFrom brings has no effect; write it into env"
