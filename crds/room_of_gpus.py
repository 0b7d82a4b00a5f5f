"""What GPUs have left for a ResourceClaim, by the scheduler's arithmetic: capacities less what claims have consumed.

The scheduler says only "cannot allocate all claims". This module compares each request with each GPU of Orion's
ResourceSlices and says what is missing: to the operator, which writes it into the pod's Events, and to `orion explain`.
CEL selectors are not evaluated here, apart from those on the GPU's mode that Orion writes itself.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from orion.crds.claims import DRIVER, MEMORY, SLOTS, TIME, selector_of_mode
from orion.crds.policy import Mode
from orion.crds.quantities import Quantity

NO_GPUS = "no node offers a GPU to claims: look at the pods of the DRA driver, and whether nodes have opted in"
_NEAREST = 5
_SLOT_NAMES = {name: f"{role} slots" for role, name in SLOTS.items()}
_OF_MODES = {selector_of_mode(mode, has): (mode, has) for mode in Mode for has in (True, False)}
_EVICTING = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class Gpu:
    """A GPU of a ResourceSlice, and what claims have consumed of it."""

    node: str
    name: str
    mode: str
    capacity: Mapping[str, Mapping[str, Any]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """ Values by full name, such as orion.gpu/model. """
    taints: tuple[str, ...] = ()
    taken: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """One request of a claim."""

    name: str
    count: int
    amounts: Mapping[str, int]
    selectors: tuple[str, ...] = ()
    in_common: str = ""
    """ The attribute of which all GPUs must have the same value; empty: none. """

    @property
    def unchecked(self) -> tuple[str, ...]:
        """The selectors that are not evaluated here."""
        return tuple(each for each in self.selectors if each not in _OF_MODES)


@dataclass(frozen=True)
class Lack:
    """A request that no node can fulfil now."""

    request: Request
    nearest: tuple[tuple[Gpu, tuple[str, ...]], ...]
    """ The GPUs that lack least, and what each of them lacks. """

    @property
    def headline(self) -> str:
        """What the request asks for."""
        asked = self.request
        same = f" and the same {asked.in_common}" if asked.in_common else ""
        return f"request {asked.name}: no node has {_count(asked.count, 'GPU')} with {_wanted(asked)}{same}"


Taken = Mapping[tuple[str, str], Counter[str]]
""" What claims have consumed of each GPU, by pool and device. """


def taken_by(claims: Iterable[Mapping[str, Any]], before: Taken | None = None) -> Taken:
    """Return what claims have consumed.

    Args:
        claims: ResourceClaims as parsed JSON.
        before: what other claims have consumed; it is added, and not to be used afterwards.
    """
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter, before or {})
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            if result["driver"] == DRIVER:
                for name, amount in (result.get("consumedCapacity") or {}).items():
                    found[result["pool"], result["device"]][name] += Quantity.read(amount).bytes
    return found


def gpus_of(slices: Iterable[Mapping[str, Any]], taken: Taken) -> list[Gpu]:
    """Return the GPUs that Orion's drivers offer now.

    Args:
        slices: ResourceSlices as parsed JSON.
        taken: what claims have consumed.
    """
    ours = [each["spec"] for each in slices if each["spec"]["driver"] == DRIVER]
    newest: Counter[str] = Counter()
    for spec in ours:
        newest[spec["pool"]["name"]] = max(newest[spec["pool"]["name"]], spec["pool"]["generation"])
    return [
        _gpu(spec, device, taken.get((spec["pool"]["name"], device["name"]), {}))
        for spec in ours
        if spec["pool"]["generation"] == newest[spec["pool"]["name"]]
        for device in spec.get("devices") or ()
    ]


def requests_of(devices: Mapping[str, Any]) -> list[Request]:
    """Return the requests of a claim's `spec.devices`; of alternatives, the last, which asks for least.

    A constraint over several requests is not taken into account.
    """
    found = []
    in_common = {
        each["requests"][0]: each.get("matchAttribute", "")
        for each in devices.get("constraints") or ()
        if len(each.get("requests") or ()) == 1
    }
    for each in devices.get("requests") or ():
        exactly = each.get("exactly") or (each.get("firstAvailable") or [{}])[-1]
        amounts = (exactly.get("capacity") or {}).get("requests") or {}
        selectors = tuple(one["cel"]["expression"] for one in exactly.get("selectors") or () if "cel" in one)
        whole = {name: Quantity.read(value).bytes for name, value in amounts.items()}
        found.append(Request(each["name"], exactly.get("count", 1), whole, selectors, in_common.get(each["name"], "")))
    return found


def explained(gpus: Sequence[Gpu], requests: Sequence[Request]) -> list[str]:
    """Return lines for a person about what the requests lack, and about those that some node can fulfil."""
    if not gpus:
        return [NO_GPUS]
    return [line for request in requests for line in _explained(gpus, request)]


def lacking(gpus: Sequence[Gpu], requests: Sequence[Request]) -> str:
    """Return one sentence about what the requests lack; empty: each has a node with room.

    crds/joint_room.py says whether a node has room for all of them together.
    """
    if not gpus:
        return NO_GPUS
    found = [found for request in requests if isinstance(found := compared(gpus, request), Lack)]
    return "; ".join(map(in_words, found))


def in_words(lack: Lack) -> str:
    """Return a sentence about what a request lacks."""
    return f"{lack.headline}; the nearest: {', or '.join(_rows(lack))}"


def unchecked(requests: Sequence[Request]) -> str:
    """Return one sentence about the selectors that are not evaluated here; empty: there are none."""
    found = [f"request {each.name}: {_must_fulfil(each)}" for each in requests if each.unchecked]
    return f"nodes have room, but {'; '.join(found)}" if found else ""


def compared(gpus: Sequence[Gpu], request: Request) -> Lack | tuple[str, int]:
    """Return what a request lacks; else a node that can fulfil it, and on how many of its GPUs."""
    lacks = [(gpu, tuple(missing(gpu, request))) for gpu in gpus]
    fitting = Counter((gpu.node, str(gpu.attributes.get(request.in_common))) for gpu, found in lacks if not found)
    places = sorted(place for place, count in fitting.items() if count >= request.count)
    if places:
        return places[0][0], fitting[places[0]]
    nearest = heapq.nsmallest(_NEAREST, lacks, key=lambda pair: (len(pair[1]), pair[0].node, pair[0].name))
    return Lack(request, tuple(nearest))


def _explained(gpus: Sequence[Gpu], request: Request) -> Iterator[str]:
    found = compared(gpus, request)
    if not isinstance(found, Lack):
        node, count = found
        yield (
            f"request {request.name}: node {node} has room on {_count(count, 'GPU')}, so something else keeps the pod "
            "away, such as CPU, memory or taints of the node, or another request: see kubectl describe pod"
        )
    else:
        yield f"{found.headline}; the nearest:"
        yield from (f"  {row}" for row in _rows(found))
    if request.unchecked:
        yield f"  {_must_fulfil(request)}"


def _must_fulfil(request: Request) -> str:
    return f"a GPU must also fulfil {' and '.join(request.unchecked)}, which was not checked here"


def _rows(lack: Lack) -> Iterator[str]:
    name = lack.request.in_common
    for gpu, lacks in lack.nearest:
        value = f", {name} {gpu.attributes[name]}" if not lacks and name else ""
        yield f"{gpu.node}, {gpu.name}: {'; '.join(lacks) or f'has room{value}'}"


def after(gpu: Gpu, request: Request) -> Gpu:
    """Return a GPU as it is once a request has got it."""
    asked = {name: _asked(capacity, request.amounts.get(name)) for name, capacity in gpu.capacity.items()}
    return replace(gpu, taken={name: gpu.taken.get(name, 0) + amount for name, amount in asked.items()})


def missing(gpu: Gpu, request: Request) -> Iterator[str]:
    """Yield what a GPU lacks for a request."""
    for taint in gpu.taints:
        yield f"it has the taint {taint}"
    for selector, (mode, has) in _OF_MODES.items():
        if selector in request.selectors and (gpu.mode == mode) is not has:
            yield f"its mode is {gpu.mode}"
    if request.in_common and request.in_common not in gpu.attributes:
        yield f"it has no {request.in_common}"
    for name in {*request.amounts} - {*gpu.capacity}:
        if request.amounts[name]:
            yield f"it has no {_called(name)}"
    for name, capacity in gpu.capacity.items():
        asked, whole = _asked(capacity, request.amounts.get(name)), Quantity.read(capacity["value"]).bytes
        left = whole - gpu.taken.get(name, 0)
        if asked > left:
            asked_text, left_text = _shown(name, asked), _shown(name, max(0, left))
            yield f"{_called(name)}: {asked_text} asked, {left_text} of {_shown(name, whole)} left"


def _asked(capacity: Mapping[str, Any], amount: int | None) -> int:
    """Return what a request consumes: the policy's default, or the amount rounded up to the policy's step."""
    policy = capacity.get("requestPolicy") or {}
    if amount is None:
        return Quantity.read(policy.get("default", capacity["value"])).bytes
    step = (policy.get("validRange") or {}).get("step")
    return -(-amount // Quantity.read(step).bytes) * Quantity.read(step).bytes if step else amount


def _gpu(spec: Mapping[str, Any], device: Mapping[str, Any], taken: Mapping[str, int]) -> Gpu:
    attributes, taints = device.get("attributes") or {}, device.get("taints") or ()
    full = {
        name if "/" in name else f"{DRIVER}/{name}": next(iter(value.values())) for name, value in attributes.items()
    }
    return Gpu(
        node=spec.get("nodeName", ""),
        name=device["name"],
        mode=full.get(f"{DRIVER}/mode", ""),
        capacity=device.get("capacity") or {},
        attributes=full,
        taints=tuple(each["key"] for each in taints if each["effect"] in _EVICTING),
        taken=taken,
    )


def _wanted(request: Request) -> str:
    return ", ".join(f"{_called(name)} {_shown(name, value)}" for name, value in request.amounts.items() if value)


def _called(name: str) -> str:
    return _SLOT_NAMES.get(name, name)


def _shown(name: str, value: int) -> str:
    if name == MEMORY:
        return str(Quantity.of_bytes(value))
    return f"{value / 1000:g}" if name == TIME else str(value)


def _count(amount: int, what: str) -> str:
    return f"{amount} {what}{'s' * (amount != 1)}"
