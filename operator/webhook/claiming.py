"""Turns the slots of a pod into one ResourceClaim, and reads the claim of a pod that has one.

A pod may have its claim already, under the name that Orion governs (`CLAIM`): because somebody wrote the claim, or
because this webhook has made it and sees the pod again. In the second case the claim is made again, since the pod may
have changed in between, and so may its GPUShare.

Each container has a request of its own, and so a slot of its own on each of its GPUs. An init container uses the
request of an app container: they never run at the same time. A sidecar runs beside the others and has its own.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from orion.crds.annotations import RESOURCES
from orion.crds.claims import CLAIM, GPUS_MAX, SHAPE, ClaimShape, shape_of
from orion.crds.places import PLACES
from orion.crds.policy import Priority
from orion.crds.share import GPUShare
from orion.errors import Unreadable
from orion.operator.webhook.decisions import Reason, Refusal
from orion.operator.webhook.pods import LISTS, Pod, PodSpec, Role, containers_of
from orion.operator.webhook.slots import WHOLE_GPUS, Ask, count


@dataclass(frozen=True)
class PodClaim:
    """The claim that a pod gets.

    Args:
        shape: what the claim asks for.
        requests: the request that each container with slots uses.
    """

    shape: ClaimShape
    requests: Mapping[str, str]


def amounts_by_hand(pod: Pod) -> dict[str, int]:
    """Return the number of slots of each container that uses a claim which somebody wrote for Orion; empty: none does.

    How many GPUs the claim has is not known here, so each container counts as having one slot.
    """
    return {} if _shape_before(pod) is not None else dict.fromkeys(_users(pod.spec), 1)


def uses_claim(pod: Pod) -> bool:
    """Return whether a container uses the claim, whoever made it."""
    return bool(_users(pod.spec))


def refuse_both(by_hand: Mapping[str, int], asked: Sequence[Ask]) -> None:
    """Reject a pod that has a claim which somebody wrote, and asks for GPUs besides.

    Raises:
        Refusal: it is such a pod.
    """
    if by_hand and asked:
        raise Refusal(
            Reason.TWO_KINDS_OF_GPU,
            f"{asked[0].entry} asks for {asked[0].resource}, and the pod's claim {CLAIM} gives GPUs already; remove "
            "one of them",
        )


def refuse_mixture(pod: Pod) -> None:
    """Reject a container that uses several requests of the claim: each is a slot of its own, and a process has one.

    A container that uses the whole claim may do the same, if the claim has several requests. The pod does not say that,
    and the webhook may not read claims.

    Raises:
        Refusal: a container does it.
    """
    for entry in containers_of(pod.spec):
        used = (entry.container.resources and entry.container.resources.claims) or ()
        requests = [each.request for each in used if each.name == CLAIM]
        if len(requests) > 1:
            names = " and ".join(request or "all" for request in requests)
            raise Refusal(
                Reason.WRONG_AMOUNT,
                f"{entry} uses several requests of the pod's claim {CLAIM} ({names}), and would get a mixture of their "
                "slots; name one of them, and let it have a count if the container needs several GPUs",
            )


def amounts_before(pod: Pod) -> dict[str, int]:
    """Return the number of slots that each container has by the claim that this webhook has made."""
    shape = _shape_before(pod)
    if shape is None:
        return {}
    return {name: shape.gpus[request] for name, request in _users(pod.spec).items() if request in shape.gpus}


def claim_for(
    pod: Pod, priority: Priority, amounts: Mapping[str, int], share: GPUShare | None, spread: bool
) -> PodClaim:
    """Return the claim that a pod needs.

    Args:
        pod: the pod.
        priority: its priority.
        amounts: the number of slots by container name.
        share: the GPUShare that governs the pod; None: none does.
        spread: whether the pod goes where few tenants are, and not to the first GPU that fits.

    Raises:
        Refusal: no claim can give what the pod needs.
    """
    requests = _requests(pod.spec, amounts)
    gpus = {name: amounts[name] for name in set(requests.values())}
    if sum(gpus.values()) > GPUS_MAX:
        raise Refusal(
            Reason.WRONG_AMOUNT,
            f"the pod asks for {count(sum(gpus.values()), 'slot')} in all, and a ResourceClaim gives at most "
            f"{GPUS_MAX}; split it into several pods",
        )
    shape = shape_of(priority, share.spec if share else None, gpus, PLACES if spread else None)
    if shape.mode is not None and max(gpus.values()) > 1:
        raise Refusal(
            Reason.WRONG_AMOUNT,
            "a GPUShare with smShare needs GPUs in mode mps, which a container with several GPUs cannot use; remove "
            "spec.smShare of the pod's GPUShare, or ask for one GPU",
            of_cluster=True,
        )
    return PodClaim(shape, requests)


def refuse_named_node(pod: Pod) -> None:
    """Reject a pod that names its node: only a scheduler gives GPUs to claims.

    Raises:
        Refusal: the pod names its node.
    """
    if pod.spec.node_name:
        raise Refusal(
            Reason.NO_SCHEDULER,
            "the pod names its node in spec.nodeName, so no scheduler gives it GPUs; select the node by "
            "spec.nodeSelector, with the label kubernetes.io/hostname",
        )


def name_template(spec: dict[str, Any], shape: ClaimShape) -> list[str]:
    """Let a pod's claim come from the template of its shape; return what changed.

    Args:
        spec: the pod's spec as parsed JSON; its fields are replaced, and the values of its fields are not changed.
        shape: the claim's shape.
    """
    wanted = {"name": CLAIM, "resourceClaimTemplateName": shape.template_name}
    claims = spec.get("resourceClaims") or []
    if wanted in claims:
        return []
    spec["resourceClaims"] = [*(each for each in claims if each.get("name") != CLAIM), wanted]
    return [f"the pod's claim {CLAIM} is made from ResourceClaimTemplate {shape.template_name}"]


def remove(after: dict[str, Any]) -> list[str]:
    """Remove the claim that this webhook has made, and its uses; return what changed.

    A manifest that was copied from a pod in a cluster with claims has them. `after` and its spec are changed, not the
    values of their fields.
    """
    spec = after["spec"]
    spec["resourceClaims"] = [each for each in spec["resourceClaims"] if each.get("name") != CLAIM]
    for list_of in LISTS:
        if spec.get(list_of):
            spec[list_of] = [_without_claim(each) for each in spec[list_of]]
    annotations = {name: value for name, value in after["metadata"]["annotations"].items() if name != SHAPE}
    after["metadata"] = {**after["metadata"], "annotations": annotations}
    return [f"the pod's claim {CLAIM} is removed: a device plugin gives slots here"]


def _without_claim(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = dict(container.get("resources") or {})
    claims = [each for each in resources.pop("claims", None) or () if each.get("name") != CLAIM]
    return {**container, "resources": {**resources, **({"claims": claims} if claims else {})}}


def write(container: MutableMapping[str, Any], request: str, amount: int) -> list[str]:
    """Replace a container's GPUs and slots by a request of the pod's claim.

    Args:
        container: the container as parsed JSON; changed in place.
        request: the request's name.
        amount: the number of slots.

    Returns:
        One phrase that says what changed; an empty list: nothing had to change.
    """
    resources = container["resources"] = dict(container.get("resources") or {})
    dropped = []
    for kind in ("limits", "requests"):
        if resources.get(kind):
            kept = resources[kind] = dict(resources[kind])
            dropped += [name for name in (*WHOLE_GPUS, *RESOURCES.values()) if kept.pop(name, None) is not None]
    wanted = {"name": CLAIM, "request": request}
    claims = resources.get("claims") or []
    if [each for each in claims if each.get("name") == CLAIM] == [wanted] and not dropped:
        return []
    resources["claims"] = [*(each for each in claims if each.get("name") != CLAIM), wanted]
    instead = f" in place of {amount} {dropped[0]}" if dropped else ""
    return [f"gets {count(amount, 'slot')} by request {request} of the pod's claim{instead}"]


def _requests(spec: PodSpec, amounts: Mapping[str, int]) -> dict[str, str]:
    apps = sorted((amounts[each.name], each.name) for each in spec.containers if each.name in amounts)
    found = {}
    for entry in containers_of(spec):
        if entry.name in amounts:
            enough = [name for amount, name in apps if amount >= amounts[entry.name]]
            found[entry.name] = enough[0] if entry.role is Role.INIT and enough else entry.name
    return found


def _shape_before(pod: Pod) -> ClaimShape | None:
    """Return the shape of the claim that this webhook has made for a pod; None: it has made none."""
    text = (pod.metadata.annotations or {}).get(SHAPE)
    if text is None:
        return None
    try:
        shape = ClaimShape.from_json(text)
    except Unreadable:
        return None
    templates = [each.resource_claim_template_name for each in pod.spec.resource_claims or () if each.name == CLAIM]
    return shape if templates == [shape.template_name] else None


def _users(spec: PodSpec) -> dict[str, str]:
    """Return the containers that use the claim, each with its request; empty: all of the claim."""
    if all(claim.name != CLAIM for claim in spec.resource_claims or ()):
        return {}
    return {
        entry.name: each.request or ""
        for entry in containers_of(spec)
        for each in (entry.container.resources and entry.container.resources.claims) or ()
        if each.name == CLAIM
    }
