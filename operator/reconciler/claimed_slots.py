"""Which slots a pod has by its ResourceClaim, and the template that the claim is made from."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from orion.crds.annotations import PINNED_SHARE
from orion.crds.claims import CLAIM, SHAPE, ClaimShape
from orion.errors import Unreadable
from orion.operator.reconciler.asked_slots import lasting_containers

Slots = tuple[tuple[str, int], ...]


class ClaimedSlots(NamedTuple):
    """What a pod has by the claim that it calls `orion`."""

    slots: Slots = ()
    """ The containers that use the claim, each with its number of slots. """
    template: str = ""
    """ The template of the webhook's claim; empty: somebody else wrote the claim. """
    shape: str = ""
    """ The shape of the claim, as the webhook wrote it into the pod. """


def claimed_slots(spec: Mapping[str, Any], marks: Mapping[str, str]) -> ClaimedSlots:
    """Return what a pod has by its claim.

    The annotation may be forged. So it counts only in a pod that the webhook has admitted (the API server lets nobody
    else write the pin), and if the template that the pod names has the name that follows from it. In a claim that
    somebody wrote, each container counts as having one slot.

    Args:
        spec: the pod's spec.
        marks: the pod's annotations.
    """
    sources = [each for each in spec.get("resourceClaims") or () if each["name"] == CLAIM]
    if not sources:
        return ClaimedSlots()
    users, template = dict(_users(spec)), sources[0].get("resourceClaimTemplateName", "")
    shape = _shape(marks.get(SHAPE, "")) if users and PINNED_SHARE in marks else None
    if shape is None or shape.template_name != template:
        return ClaimedSlots(tuple((name, 1) for name in users))
    counts = tuple((name, shape.gpus.get(request, 1)) for name, request in users.items())
    return ClaimedSlots(counts, sys.intern(template), sys.intern(shape.as_json()))


def _shape(text: str) -> ClaimShape | None:
    try:
        return ClaimShape.from_json(text)
    except Unreadable:
        return None


def _users(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for container in lasting_containers(spec):
        for used in (container.get("resources") or {}).get("claims") or ():
            if used["name"] == CLAIM:
                yield sys.intern(container["name"]), used.get("request", "")
