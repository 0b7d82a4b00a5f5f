"""How a GPU can be cut into parts, and which cuts of several GPUs the search looks at."""

from collections.abc import Iterator, Sequence
from itertools import combinations, combinations_with_replacement
from math import comb

ALL_CUTS = 500
""" Up to so many combinations of cuts are all looked at. Beyond, at most two kinds of cut are combined. """

Cut = tuple[int, ...]


def cuts(sizes: Sequence[int], most: int) -> list[Cut]:
    """Return the ways to cut one GPU into parts of these sizes (percent), at most so many.

    Cuts to which one more part could be added, or in which one part could be larger, are left out.
    """
    ordered = sorted({size for size in sizes if 0 < size <= 100}, reverse=True)
    return [cut for cut in _cuts(tuple(ordered), 100, most) if cut and _is_full(cut, ordered, most)]


def _cuts(sizes: Cut, room: int, most: int) -> Iterator[Cut]:
    yield ()
    if not most:
        return
    for place, size in enumerate(sizes):
        if size <= room:
            for rest in _cuts(sizes[place:], room - size, most - 1):
                yield (size, *rest)


def _is_full(cut: Cut, sizes: Sequence[int], most: int) -> bool:
    room = 100 - sum(cut)
    if len(cut) < most and min(sizes) <= room:
        return False
    return not any(size > part and size - part <= room for part in cut for size in sizes)


def combined(kinds: Sequence[Cut], gpus: int) -> Iterator[tuple[Cut, ...]]:
    """Yield the cuts of so many GPUs to look at; the order of GPUs does not matter."""
    if comb(len(kinds) + gpus - 1, gpus) <= ALL_CUTS:
        yield from combinations_with_replacement(kinds, gpus)
        return
    for kind in kinds:
        yield (kind,) * gpus
    step = max(1, gpus // 8)
    for one, other in combinations(kinds, 2):
        for count in range(step, gpus, step):
            yield (one,) * count + (other,) * (gpus - count)
