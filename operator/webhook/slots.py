"""Decides which containers of a pod get slots and how many, and writes the slots into the containers' resources.

A slot is the right to use one GPU, so a request for n GPUs becomes n slots. If the pod has the annotation
`orion/containers`, the containers that it names get slots. Without the annotation, the containers that ask for a GPU
get slots; if none asks, the pod's only container gets one slot. If a container asks for a GPU but the annotation leaves
it out, the pod is rejected, because that container would otherwise get a whole GPU.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from orion.crds.annotations import CONTAINERS, RESOURCES, WRITTEN
from orion.crds.claims import BY_CLASS
from orion.crds.policy import Priority
from orion.crds.quantities import Quantity
from orion.operator.webhook.decisions import Reason, Refusal
from orion.operator.webhook.pods import PodContainer, PodSpec, Role, containers_of

SLOTS_MAX = 64
""" The most slots of one container. No node has more GPUs. """

WHOLE_GPUS = ("nvidia.com/gpu", "nvidia.com/gpu.shared")
""" The resources that slots replace: NVIDIA's resource, and its name if NVIDIA's device plugin time-slices. """

_PARTS_OF_GPUS = "nvidia.com/mig-"
_PRIORITIES = {resource: priority for priority, resource in RESOURCES.items()}


@dataclass(frozen=True)
class Ask:
    """The GPUs or slots that a container asks for, before admission changes the container.

    Args:
        entry: the container.
        resource: the resource's name.
        amount: the number of GPUs or slots; at least 1.
        priority: the priority of the slots; None: the container asks for whole GPUs.
    """

    entry: PodContainer
    resource: str
    amount: int
    priority: Priority | None


def asks(spec: PodSpec) -> list[Ask]:
    """Return what the containers of a pod ask for. Containers that ask for no GPU are left out.

    Raises:
        Refusal: a container asks for two kinds of GPUs or slots, for an unknown kind, or for an invalid amount.
    """
    found = []
    for entry in containers_of(spec):
        own = _asks_of(entry)
        if len(own) > 1:
            _refuse_two_kinds(*own[:2])
        found += own
    return found


def assign(
    spec: PodSpec,
    asked: Sequence[Ask],
    named: Sequence[str] | None,
    before: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int]:
    """Return the number of slots of each container, by name. Containers without slots are left out.

    Args:
        spec: the pod's spec.
        asked: what the pod's containers ask for.
        named: the containers in the annotation `orion/containers`; None: the pod lacks the annotation.
        before: the slots that containers have already; what they ask for now counts instead.

    Raises:
        Refusal: the annotation contradicts the containers' requests, or the pod has several containers and neither
            the annotation nor a request selects one.
    """
    amounts = {**before, **{ask.entry.name: ask.amount for ask in asked}}
    if named is not None:
        amounts = _named(spec, amounts, named)
    elif not amounts:
        amounts = {_only(spec): 1}
    _check_init_containers(spec, amounts)
    return amounts


def write(container: MutableMapping[str, Any], priority: Priority, amount: int) -> list[str]:
    """Replace a container's whole GPUs by slots, in requests and limits.

    Args:
        container: the container as parsed JSON; changed in place.
        priority: the priority of the slots.
        amount: the number of slots.

    Returns:
        One phrase that says what changed; an empty list: nothing had to change.
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
    """Return an amount with its noun, such as "2 slots orion.gpu/be"."""
    return f"{amount} {what if amount == 1 else what.replace('slot', 'slots', 1)}"


def _asks_of(entry: PodContainer) -> list[Ask]:
    resources = entry.container.resources
    limits, requests = (resources and resources.limits) or {}, (resources and resources.requests) or {}
    found = []
    for name in sorted({*limits, *requests}):
        if name in (*WHOLE_GPUS, *BY_CLASS) or name.startswith((WRITTEN, _PARTS_OF_GPUS)):
            amount = _amount(entry, name, limits, requests)
            if amount:
                found.append(Ask(entry, name, amount, _kind(entry, name)))
            elif name.startswith(WRITTEN):
                raise Refusal(Reason.WRONG_AMOUNT, f"{entry} asks for 0 of {name}; remove it, or ask for at least 1")
    return found


def _amount(entry: PodContainer, name: str, limits: Mapping[str, Any], requests: Mapping[str, Any]) -> int:
    values = []
    for amounts in (limits, requests):
        if name in amounts:
            try:
                values.append(Quantity.read(amounts[name]).value)
            except ValueError:
                values.append(Quantity("-1").value)
    if values[0] != values[-1]:
        raise Refusal(
            Reason.WRONG_AMOUNT, f"{entry} has different amounts of {name} in limits and requests; they must be equal"
        )
    amount = values[0]
    if amount != int(amount) or not 0 <= amount <= SLOTS_MAX:
        shown = limits.get(name, requests.get(name))
        raise Refusal(
            Reason.WRONG_AMOUNT,
            f"{entry} asks for {str(shown)[:32]} of {name}; the amount must be an integer up to {SLOTS_MAX}",
        )
    return int(amount)


def _kind(entry: PodContainer, name: str) -> Priority | None:
    if name.startswith(_PARTS_OF_GPUS):
        raise Refusal(
            Reason.TWO_KINDS_OF_GPU,
            f"{entry} asks for {name}: Orion shares whole GPUs; ask for {WHOLE_GPUS[0]} instead",
        )
    if name in BY_CLASS:
        raise Refusal(
            Reason.TWO_KINDS_OF_GPU,
            f"{entry} asks for {name}, which would give it a slot without a GPUShare; ask for {WHOLE_GPUS[0]} instead, "
            "with the annotation orion/priority",
        )
    if name not in WHOLE_GPUS and name not in _PRIORITIES:
        known = " or ".join(RESOURCES.values())
        raise Refusal(Reason.TWO_KINDS_OF_GPU, f"{entry} asks for {name}, which does not exist; ask for {known}")
    return _PRIORITIES.get(name)


def _refuse_two_kinds(first: Ask, second: Ask) -> None:
    both = f"{first.entry} asks for {first.resource} and {second.resource}"
    if first.priority and second.priority:
        raise Refusal(Reason.MIXED_PRIORITIES, f"{both}: a container is either hp or be; remove one of them")
    raise Refusal(Reason.TWO_KINDS_OF_GPU, f"{both}: a slot already gives access to a GPU; remove one of them")


def _named(spec: PodSpec, amounts: Mapping[str, int], named: Sequence[str]) -> dict[str, int]:
    existing = [entry.name for entry in containers_of(spec) if entry.role is not Role.EPHEMERAL]
    known, wanted = set(existing), set(named)
    for name in named:
        if name not in known:
            raise Refusal(
                Reason.NO_CONTAINER,
                f"annotation {CONTAINERS} names {name[:63]!r}; the pod's containers are {', '.join(existing)}",
            )
    for name in amounts:
        if name not in wanted:
            raise Refusal(
                Reason.NO_CONTAINER,
                f"container {name} asks for a GPU, but annotation {CONTAINERS} leaves it out; add it there, or remove "
                "its request",
            )
    return {name: amounts.get(name, 1) for name in existing if name in wanted}


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
    """Reject a pod whose init container gets more slots than any app container.

    App containers reuse the slots of init containers. Surplus slots would stay allocated to the pod without use.
    """
    most = max((amounts.get(container.name, 0) for container in spec.containers), default=0)
    for entry in containers_of(spec):
        if entry.role is Role.INIT and amounts.get(entry.name, 0) > most:
            raise Refusal(
                Reason.INIT_CONTAINER_ASKS_FOR_MORE,
                f"{entry} asks for {count(amounts[entry.name], 'slot')}, but no container of the pod asks for "
                f"more than {most}: the surplus would stay unused; lower the init container's request, or raise "
                "a container's",
            )
