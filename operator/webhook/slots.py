"""Which containers of a pod get how many slots, and of which kind.

A slot is a seat on one GPU, so n GPUs become n slots. Which containers: those that ask for a GPU, or those that the pod
names in `orion/containers`; where nobody asks and nothing is named, the only container there is. A container that asks
while others are named is refused rather than left with a GPU of its own: its owner meant one or the other.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from orion.crds.annotations import CONTAINERS, RESOURCES, WRITTEN
from orion.crds.policy import Priority
from orion.crds.quantities import Quantity
from orion.operator.webhook.decisions import Reason, Refusal
from orion.operator.webhook.pods import Place, PodSpec, Role, places

SLOTS_MAX = 64
""" Of one container; no node has so many GPUs. """

WHOLE_GPUS = ("nvidia.com/gpu", "nvidia.com/gpu.shared")
""" What slots take the place of: NVIDIA's resource, and its name where that plugin time-slices. """

_PARTS_OF_GPUS = "nvidia.com/mig-"
_PRIORITIES = {resource: priority for priority, resource in RESOURCES.items()}


@dataclass(frozen=True)
class Ask:
    """What a container asks for, before admission has changed it.

    Args:
        place: the container.
        resource: the resource's name.
        amount: how many of it; at least one.
        priority: of the slots; None: whole GPUs.
    """

    place: Place
    resource: str
    amount: int
    priority: Priority | None


def asks(spec: PodSpec) -> list[Ask]:
    """Return what the containers of a pod ask for, those that ask for no GPU left out.

    Raises:
        Refusal: a container asks for two kinds, for a kind that there is not, or for an amount that cannot be.
    """
    found = []
    for place in places(spec):
        own = _asks_of(place)
        if len(own) > 1:
            _refuse_two_kinds(*own[:2])
        found += own
    return found


def assign(spec: PodSpec, asked: Sequence[Ask], named: Sequence[str] | None) -> dict[str, int]:
    """Return how many slots each container gets, by name; those that get none are left out.

    Args:
        spec: of the pod.
        asked: what its containers ask for.
        named: those that its annotation names; None: it has no such annotation.

    Raises:
        Refusal: the annotation and the containers contradict each other, or it cannot be told which is meant.
    """
    amounts = {ask.place.name: ask.amount for ask in asked}
    if named is not None:
        amounts = _named(spec, amounts, named)
    elif not amounts:
        amounts = {_only(spec): 1}
    _check_init_containers(spec, amounts)
    return amounts


def write(container: MutableMapping[str, Any], priority: Priority, amount: int) -> list[str]:
    """Make a container ask for slots, requests and limits alike, in place of whole GPUs.

    Args:
        container: a plain container, changed in place.
        priority: of the slots.
        amount: how many.

    Returns:
        What changed, for people; empty where it asked so already.
    """
    resource = RESOURCES[priority]
    resources = container["resources"] = dict(container.get("resources") or {})
    dropped, changed = [], False
    for kind in ("limits", "requests"):
        amounts = resources[kind] = dict(resources.get(kind) or {})
        dropped += [name for name in WHOLE_GPUS if amounts.pop(name, None) is not None]
        if resource not in amounts or Quantity.read(amounts[resource]).value != amount:
            amounts[resource] = str(amount)
            changed = True
    if not changed and not dropped:
        return []
    instead = f" in place of {amount} {dropped[0]}" if dropped else ""
    return [f"asks for {count(amount, f'slot {resource}')}{instead}"]


def count(amount: int, what: str) -> str:
    """Return a number of slots in words."""
    return f"{amount} {what if amount == 1 else what.replace('slot', 'slots', 1)}"


def _asks_of(place: Place) -> list[Ask]:
    resources = place.container.resources
    limits, requests = (resources and resources.limits) or {}, (resources and resources.requests) or {}
    found = []
    for name in sorted({*limits, *requests}):
        if name in WHOLE_GPUS or name.startswith((WRITTEN, _PARTS_OF_GPUS)):
            amount = _amount(place, name, limits, requests)
            if amount:
                found.append(Ask(place, name, amount, _kind(place, name)))
            elif name.startswith(WRITTEN):
                raise Refusal(Reason.WRONG_AMOUNT, f"{place} asks for 0 of {name}; remove it, or ask for at least 1")
    return found


def _amount(place: Place, name: str, limits: Mapping[str, Any], requests: Mapping[str, Any]) -> int:
    values = []
    for amounts in (limits, requests):
        if name in amounts:
            try:
                values.append(Quantity.read(amounts[name]).value)
            except ValueError:
                values.append(Quantity("-1").value)
    if values[0] != values[-1]:
        raise Refusal(Reason.WRONG_AMOUNT, f"{place} has a limit of {name} that is not its request; they must be equal")
    amount = values[0]
    if amount != int(amount) or not 0 <= amount <= SLOTS_MAX:
        shown = limits.get(name, requests.get(name))
        raise Refusal(
            Reason.WRONG_AMOUNT, f"{place} asks for {str(shown)[:32]} of {name}; it must be a number up to {SLOTS_MAX}"
        )
    return int(amount)


def _kind(place: Place, name: str) -> Priority | None:
    if name.startswith(_PARTS_OF_GPUS):
        raise Refusal(
            Reason.TWO_KINDS_OF_GPU,
            f"{place} asks for {name}: Orion shares whole GPUs; ask for {WHOLE_GPUS[0]} instead",
        )
    if name not in WHOLE_GPUS and name not in _PRIORITIES:
        there_are = " and ".join(RESOURCES.values())
        raise Refusal(Reason.TWO_KINDS_OF_GPU, f"{place} asks for {name}, which does not exist; there are {there_are}")
    return _PRIORITIES.get(name)


def _refuse_two_kinds(first: Ask, second: Ask) -> None:
    both = f"{first.place} asks for {first.resource} and {second.resource}"
    if first.priority and second.priority:
        raise Refusal(Reason.MIXED_PRIORITIES, f"{both}: a container is either hp or be; remove one of them")
    raise Refusal(Reason.TWO_KINDS_OF_GPU, f"{both}: a slot is already a seat on a GPU; remove one of them")


def _named(spec: PodSpec, amounts: Mapping[str, int], named: Sequence[str]) -> dict[str, int]:
    there = [place.name for place in places(spec) if place.role is not Role.EPHEMERAL]
    known, wanted = set(there), set(named)
    for name in named:
        if name not in known:
            raise Refusal(
                Reason.NO_CONTAINER,
                f"annotation {CONTAINERS} names {name[:63]!r}; the pod's containers are {', '.join(there)}",
            )
    for name in amounts:
        if name not in wanted:
            raise Refusal(
                Reason.NO_CONTAINER,
                f"container {name} asks for a GPU, but annotation {CONTAINERS} leaves it out; add it there, or remove "
                "its request",
            )
    return {name: amounts.get(name, 1) for name in there if name in wanted}


def _only(spec: PodSpec) -> str:
    if len(spec.containers) == 1:
        return spec.containers[0].name
    names = ", ".join(container.name for container in spec.containers)
    raise Refusal(
        Reason.NO_CONTAINER,
        f"none of the containers {names} asks for a GPU; set {WHOLE_GPUS[0]} in the limits of those that use one, or "
        f"name them in annotation {CONTAINERS}",
    )


def _check_init_containers(spec: PodSpec, amounts: Mapping[str, int]) -> None:
    """Refuse an init container that would keep slots from others: an app container takes over those that it had."""
    most = max((amounts.get(container.name, 0) for container in spec.containers), default=0)
    for place in places(spec):
        if place.role is Role.INIT and amounts.get(place.name, 0) > most:
            raise Refusal(
                Reason.INIT_CONTAINER_ASKS_FOR_MORE,
                f"{place} asks for {count(amounts[place.name], 'slot')}, but no container of the pod for more than "
                f"{most}: the slots of an init container go on to the containers after it, so ask for no more",
            )
