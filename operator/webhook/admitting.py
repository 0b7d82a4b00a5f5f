"""Decides what happens to a pod: a pure function of the pod, the shares of its namespace and the GPUs.

The function uses no clock, no network and no state. It must be idempotent: if another webhook changes the pod after
this webhook, the API server calls this webhook again with the changed pod. `orion explain` also calls the function,
without a cluster.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orion.crds.annotations import (
    CONTAINERS,
    MIRROR,
    PRIORITY,
    PRIORITY_LABEL,
    SHARE,
    PodMarks,
    read_marks,
)
from orion.crds.governing import Shares
from orion.crds.policy import Priority
from orion.crds.quantities import Memory
from orion.crds.share import GPUShare
from orion.crds.workloads import Owner, Revision, revision_of
from orion.errors import Unreadable
from orion.operator.webhook import choosing, claiming, hazards, parking, preloading, slots
from orion.operator.webhook.changing import Wanted, changed
from orion.operator.webhook.cluster_facts import Gpus
from orion.operator.webhook.decisions import Decision, Outcome, Reason, Refusal
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.pods import Pod, Role, containers_of

CONTAINERS_MAX = 200
""" The most containers of a pod that shares GPUs. """


@dataclass(frozen=True)
class Cluster:
    """The facts about the cluster that admission uses.

    Args:
        shares: the GPUShares of the pod's namespace.
        gpus: all GPUs.
        namespace: the pod's namespace, as the API server says; empty: the pod's own field counts.
    """

    shares: Shares = field(default_factory=Shares)
    gpus: Gpus = field(default_factory=Gpus)
    namespace: str = ""


def admit(plain: Mapping[str, Any], cluster: Cluster, defaults: Defaults) -> Decision:
    """Decide about a pod that is being created.

    Args:
        plain: the pod as parsed JSON; it is not changed.
        cluster: the shares of the pod's namespace, and the GPUs.
        defaults: the settings of the installation.

    Raises:
        pydantic.ValidationError: `plain` is not a valid pod.
    """
    pod = Pod.model_validate(plain)
    try:
        return _admit(plain, pod, cluster, defaults)
    except Refusal as refusal:
        return Decision.refused(plain, refusal)


def admit_ephemeral(plain: Mapping[str, Any], before: Mapping[str, Any] | None, defaults: Defaults) -> Decision:
    """Decide about ephemeral containers that are being added to a pod.

    Args:
        plain: the pod with the ephemeral containers, as parsed JSON.
        before: the pod before the change; None: not known, so all ephemeral containers count as new.
        defaults: the settings of the installation.
    """
    known = {entry.name for entry in containers_of(Pod.model_validate(before).spec)} if before else set()
    new = [entry for entry in containers_of(Pod.model_validate(plain).spec) if entry.role is Role.EPHEMERAL]
    try:
        hazards.refuse_containers([entry for entry in new if entry.name not in known], frozenset(), defaults)
    except Refusal as refusal:
        return Decision.refused(plain, refusal)
    return Decision(Outcome.UNCHANGED, Reason.HARMLESS, plain)


def _admit(plain: Mapping[str, Any], pod: Pod, cluster: Cluster, defaults: Defaults) -> Decision:
    marks = _marks(pod)
    asked, by_hand = slots.asks(pod.spec), claiming.amounts_by_hand(pod)
    none = not claiming.uses_claim(pod) and all(ask.priority is None for ask in asked)
    if none and marks == PodMarks():
        return Decision(Outcome.UNCHANGED, Reason.NOT_OURS, plain)
    if none:
        _refuse_static_pod(pod)
    _refuse_many_containers(pod)
    share, how = _governing(pod, marks, cluster, defaults)
    priority, why = _priority(marks, asked, share)
    _refuse_other_label(pod, priority, why)
    claiming.refuse_both(by_hand, asked)
    if by_hand:
        claiming.refuse_mixture(pod)
    before = claiming.amounts_before(pod)
    amounts = by_hand or slots.assign(pod.spec, asked, marks.containers, before)
    hazards.refuse_hazards(pod, amounts.keys(), defaults)
    memory = _more_than_known(share, cluster)
    giver, why_giver = choosing.choose(pod.spec, share, cluster.gpus.some_claims, defaults)
    wanted = Wanted(
        pod, priority, amounts, bool(by_hand), share, memory, _revision(pod, cluster), giver, pins=bool(why_giver)
    )
    after, changes = changed(plain, wanted, defaults)
    return Decision(
        Outcome.PATCHED if changes else Outcome.UNCHANGED,
        Reason.SLOTS_GIVEN,
        after,
        because=(why, how, *([why_giver] if why_giver and not by_hand else []), *changes),
        cautions=(*_cautions(pod, amounts, memory, cluster), *parking.cautions(pod, amounts, share)),
        share=share.metadata.name if share else None,
        priority=priority,
        slots=amounts,
        probed=parking.probed(pod, amounts),
    )


def _refuse_static_pod(pod: Pod) -> None:
    """Reject the mirror pod of a static pod without slots. One with slots is admitted, and the node's agent refuses it.

    The kubelet starts a static pod whatever happens to its mirror pod. If it asks for slots, the agent can refuse the
    start, and Events of the mirror pod say so. If it does not, nothing on the node asks Orion.
    """
    if MIRROR in (pod.metadata.annotations or {}):
        raise Refusal(
            Reason.STATIC_POD,
            "static pods cannot share GPUs: the kubelet starts them from a file of the node before any admission, so "
            "they have no hook and no limit; remove the file, and run the pod by a DaemonSet or a Deployment",
        )


def _refuse_many_containers(pod: Pod) -> None:
    """Reject a pod whose decision would hold up all others: the time grows with the square of the containers."""
    spec = pod.spec
    count = sum(len(each or ()) for each in (spec.containers, spec.init_containers, spec.ephemeral_containers))
    if count > CONTAINERS_MAX:
        raise Refusal(
            Reason.TOO_MANY_CONTAINERS,
            f"the pod has {count} containers, and a pod that shares GPUs may have {CONTAINERS_MAX} at most; split it "
            "into several pods",
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
    if marks.share is not None and cluster.shares.is_beyond(marks.share):
        raise Refusal(
            Reason.TOO_MANY_SHARES,
            f"annotation {SHARE} names GPUShare {marks.share}, which does not govern: only the {cluster.shares.most} "
            "oldest GPUShares of a namespace do; delete GPUShares that nobody needs, or name an older one",
            of_cluster=True,
        )
    if marks.share is not None:
        raise Refusal(
            Reason.SHARE_NOT_FOUND,
            f"annotation {SHARE} names GPUShare {marks.share}, which does not exist in the pod's namespace; create it, "
            "or correct the name",
            of_cluster=True,
        )
    if defaults.require_share:
        raise Refusal(
            Reason.SHARE_REQUIRED,
            "this cluster requires a GPUShare for each pod, and no GPUShare of the namespace selects this pod; create "
            f"one, or name one in annotation {SHARE}",
            of_cluster=True,
        )
    return None, "no GPUShare governs the pod, so the cluster's defaults apply"


def _priority(marks: PodMarks, asked: Sequence[slots.Ask], share: GPUShare | None) -> tuple[Priority, str]:
    """Return the pod's priority and where it comes from: annotation, resources or share. All must agree."""
    found: list[tuple[Priority, str]] = []
    if marks.priority is not None:
        found.append((marks.priority, f"annotation {PRIORITY} says {marks.priority}"))
    found += [(ask.priority, f"{ask.entry} asks for {ask.resource}") for ask in asked if ask.priority is not None]
    for other, words in found[1:]:
        if other is not found[0][0]:
            mixed = f"{found[0][1]}, but {words}: a pod is either hp or be; split it into two pods"
            raise Refusal(Reason.MIXED_PRIORITIES, mixed)
    if share is not None:
        words = f"GPUShare {share.metadata.name} has spec.priority {share.spec.priority}"
        if found and share.spec.priority is not found[0][0]:
            raise Refusal(Reason.PRIORITY_CONFLICT, f"{found[0][1]}, but {words}; make them the same", of_cluster=True)
        found.append((share.spec.priority, words))
    if not found:
        raise Refusal(
            Reason.NO_PRIORITY, f"annotation {CONTAINERS} has no effect without a priority; set {PRIORITY} to hp or be"
        )
    priority, why = found[0]
    return priority, f"the pod is {priority}: {why}"


def _revision(pod: Pod, cluster: Cluster) -> Revision:
    meta = pod.metadata
    owners = [Owner(each.kind, each.name) for each in meta.owner_references or () if each.controller]
    return revision_of(cluster.namespace or meta.namespace or "", meta.labels or {}, owners)


def _refuse_other_label(pod: Pod, priority: Priority, why: str) -> None:
    """Reject a pod whose label would have to change: a controller whose selector has it would make pods without end."""
    label = (pod.metadata.labels or {}).get(PRIORITY_LABEL, priority)
    if label != priority:
        raise Refusal(
            Reason.PRIORITY_CONFLICT,
            f"label {PRIORITY_LABEL} says {label}, but {why}; remove the label, which only Orion writes",
        )


def _more_than_known(share: GPUShare | None, cluster: Cluster) -> Memory | None:
    """Return the memory that each slot reserves, if no known GPU has as much; otherwise, or if none is known, None."""
    memory = share.spec.memory if share else None
    reserved = (memory.request or memory.limit) if memory else None
    if reserved is None or cluster.gpus.largest is None or reserved.bytes <= cluster.gpus.largest:
        return None
    return reserved


def _cautions(pod: Pod, amounts: Mapping[str, int], memory: Memory | None, cluster: Cluster) -> Iterable[str]:
    if memory is not None and cluster.gpus.largest is not None:
        yield (
            f"the pod's GPUShare reserves {memory} for each slot, and the largest GPU of the cluster has "
            f"{Memory.of_bytes(cluster.gpus.largest)}: the pod waits for a node with larger GPUs; lower the "
            "GPUShare's spec.memory.request if there is none"
        )
    for entry in containers_of(pod.spec):
        if entry.name not in amounts:
            continue
        own = {variable.name for variable in entry.container.env or ()}
        if preloading.PRELOAD not in own and preloading.may_bring(entry.container, preloading.PRELOAD):
            yield f"{entry}: an {preloading.PRELOAD} from envFrom has no effect; write it into env"
