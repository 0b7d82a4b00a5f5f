"""From a plan that runs to the next one with little movement.

The running plan stays as long as it holds the new rates and the new plan would save no GPU. Otherwise the new plan's
GPUs take the numbers of those running GPUs that share most with them, so that few services start on another GPU.
"""

from collections.abc import Sequence

from ..plans import Part, Plan
from .checking import Filled, Layout, checked
from .filling import OpenPart
from .tables import Tables


def kept(tables: Tables, layout: Layout, previous: Plan | None) -> Layout | None:
    """Return the running plan with the new rates; None if it does not hold, or needs more GPUs than the new one."""
    if previous is None or previous.gpus > len({part.gpu for part in layout.parts}):
        return None
    open_parts = _open_parts(tables, previous)
    return checked(tables, open_parts) if open_parts else None


def _open_parts(tables: Tables, previous: Plan) -> list[OpenPart]:
    """Return the running parts with the new rates; empty: a service or a part of it is not known."""
    names = {service.name: place for place, service in enumerate(tables.services)}
    totals: dict[str, float] = {}
    for part in previous.parts:
        for each in part.services:
            totals[each.service] = totals.get(each.service, 0.0) + each.throughput
    if set(totals) != set(names) or not all(totals.values()):
        return []
    types = [gpu for gpu in tables.gpus for _ in range(gpu.count)]
    open_parts = []
    for part in previous.parts:
        if part.gpu >= len(types):
            return []
        gpu = types[part.gpu]
        cut = tuple(sorted((other.share for other in previous.parts if other.gpu == part.gpu), reverse=True))
        kind = next((each for each in tables.kinds if each.gpu is gpu and _within(cut, each.cut)), None)
        if kind is None:
            return []
        pieces = {
            names[each.service]: tables.rates[names[each.service]] * each.throughput / totals[each.service]
            for each in sorted(part.services, key=lambda each: names[each.service])
        }
        if any(gpu.name not in tables.services[place].profiles for place in pieces):
            return []
        open_parts.append(OpenPart(part.gpu, part.share, tables.kind(gpu, kind.cut, part.share), pieces=pieces))
    return open_parts


def _within(cut: tuple[int, ...], full: tuple[int, ...]) -> bool:
    left = list(full)
    for share in cut:
        if share not in left:
            return False
        left.remove(share)
    return True


def renamed(tables: Tables, parts: Sequence[tuple[Part, Filled]], previous: Plan) -> list[tuple[Part, Filled]]:
    """Return the parts with GPU numbers that keep most of the running plan; types keep their numbers."""
    types = [gpu.name for gpu in tables.gpus for _ in range(gpu.count)]
    new: dict[int, list[Part]] = {}
    for part, _ in parts:
        new.setdefault(part.gpu, []).append(part)
    pairs = sorted(
        ((-_shared(there, previous, old), old, number) for number, there in new.items() for old in range(len(types))),
    )
    numbers: dict[int, int] = {}
    for _, old, number in pairs:
        if number not in numbers and old not in numbers.values() and types[old] == types[number]:
            numbers[number] = old
    return [
        (Part(numbers[part.gpu], part.share, part.copy, part.way, part.order, part.services), filled)
        for part, filled in parts
    ]


def _shared(parts: Sequence[Part], previous: Plan, gpu: int) -> float:
    """Return what one GPU's new parts keep of a running GPU: 2 for a service on a part of its size, else 1."""
    running = [(each.service, part.share) for part in previous.parts if part.gpu == gpu for each in part.services]
    wanted = [(each.service, part.share) for part in parts for each in part.services]
    same = sum(each in running for each in wanted)
    return same + sum(name in {service for service, _ in running} for name, _ in wanted)
