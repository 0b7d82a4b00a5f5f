"""The search: as few GPUs as hold every objective, and among such layouts one that misses little.

For each number of GPUs it goes through the ways to cut them, fills the parts with services, and checks the result. The
level of load rises until a layout holds, so parts are not much fuller than they must be. At one level the layout with
the fewest parts comes first: each further part needs memory for a context, and another client on the GPU costs time.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from .checking import Layout, checked
from .filling import OpenPart, fill
from .partitions import Cut, combined
from .services import GpuType
from .tables import Tables

LEVELS = (0.8, 0.88, 0.94, 1.0)
""" Loads of a part that are tried, as parts of what its services can do. At the first one hardly a request is late. """


class Shape(NamedTuple):
    """GPUs and how they are cut, and whether small parts are filled first."""

    gpus: tuple[tuple[GpuType, Cut], ...]
    small_first: bool


def search(tables: Tables) -> Layout | None:
    """Return the best layout; None if no number of the GPUs holds every objective."""
    if not tables.services:
        return Layout((), 0.0)
    for counts in _counts(tables):
        found = _on(tables, counts)
        if found is not None:
            return found
    return None


def _counts(tables: Tables) -> Iterator[tuple[int, ...]]:
    """Yield how many GPUs of each type to try: few first, then those of the types that come first."""
    ranges = [range(gpu.count + 1) for gpu in tables.gpus]
    return iter(sorted(product(*ranges), key=lambda counts: (sum(counts), [-count for count in counts])))


def _on(tables: Tables, counts: Sequence[int]) -> Layout | None:
    shapes = _shapes(tables, counts)
    first = _first_level(tables, shapes)
    simple = sorted(shapes, key=lambda shape: sum(len(cut) for _, cut in shape.gpus))
    checks = 0
    for level in LEVELS[first:]:
        for shape in simple:
            open_parts = _filled_up(tables, shape, level) if checks < tables.care.checks else []
            if open_parts:
                checks += 1
                layout = checked(tables, open_parts)
                if layout is not None:
                    return layout
    return None


def _first_level(tables: Tables, shapes: Sequence[Shape]) -> int:
    """Return the number of the lowest level at which some shape holds the services; one too many if none does."""
    low, high = 0, len(LEVELS)
    middle = len(LEVELS) - 1
    while low < high:
        if any(_filled_up(tables, shape, LEVELS[middle]) for shape in shapes):
            high = middle
        else:
            low = middle + 1
        middle = (low + high) // 2
    return low


def _shapes(tables: Tables, counts: Sequence[int]) -> list[Shape]:
    """Return the shapes of these GPUs that could do the services' work; first those that have most to spare."""
    offered = [(gpu, kinds, count) for gpu, kinds, count in zip(tables.gpus, tables.cuts, counts, strict=True) if count]
    if not offered or _needed(tables, [(gpu, cut) for gpu, kinds, _ in offered for cut in kinds]) > sum(counts):
        return []
    found: list[tuple[float, Shape]] = []
    for choice in product(*(combined(kinds, count) for _, kinds, count in offered)):
        gpus = tuple((gpu, cut) for (gpu, _, _), chosen in zip(offered, choice, strict=True) for cut in chosen)
        needed = _needed(tables, gpus)
        if needed <= len(gpus):
            found.append((needed, Shape(gpus, True)))
            if len({share for _, cut in gpus for share in cut}) > 1:
                found.append((needed, Shape(gpus, False)))
    return [shape for _, shape in sorted(found, key=lambda entry: entry[0])][: tables.care.shapes]


def _needed(tables: Tables, gpus: Sequence[tuple[GpuType, Cut]]) -> float:
    """Return how many GPUs the services need at least, if each goes where it needs least."""
    rows = [tables.least[key] for key in {(gpu.name, cut): None for gpu, cut in gpus}]
    least = [min(needed) for needed in zip(*rows, strict=True)]
    return float(sum(least))


def _filled_up(tables: Tables, shape: Shape, level: float) -> list[OpenPart]:
    """Return the filled parts; empty: they do not hold the services at this level."""
    open_parts = [
        OpenPart(place, share, tables.kind(gpu, cut, share))
        for place, (gpu, cut) in enumerate(shape.gpus)
        for share in cut
    ]
    open_parts.sort(key=lambda open_part: (open_part.share if shape.small_first else -open_part.share, open_part.gpu))
    done = fill(tables, open_parts, [gpu.memory_mb for gpu, _ in shape.gpus], level)
    return open_parts if done else []
