"""Of all ways to share one GPU, the one with the shortest latencies.

The search takes the first layout that holds every objective, and turns come first. Where the whole plan is one GPU, all
layouts can be compared. Those with the fewest predicted misses are equal at low loads, so the shortest latency decides:
of each layout the service counts that comes nearest to its objective. A service with a short objective beside long
batches then gets a part of its own, because nothing interrupts a batch. Services that are alike and take turns keep
the whole GPU, because each of their batches is faster there.

Refused: the same for plans of several GPUs. Their layouts are too many to compare, and they are full, so that misses
decide.
"""

from collections.abc import Iterator
from itertools import product

from .checking import Filled, Layout, checked
from .filling import OpenPart
from .services import GpuType
from .tables import Tables

MOST_LAYOUTS = 40
""" With more layouts than these, the first one stays. """
GAIN = 0.95
""" A layout with more parts has to make the latency so much shorter; what is less is within the predictor's error. """
MISSES_GRAIN = 1e-3
""" Misses that differ by less than this part of the requests are equal. """


def shortest(tables: Tables, layout: Layout) -> Layout:
    """Return the layout of one GPU with the fewest misses, then the shortest latency; a plan of more GPUs stays."""
    if len({part.gpu for part in layout.parts}) != 1:
        return layout
    gpu = tables.kinds[layout.parts[0].kind].gpu
    candidates = list(_layouts(tables, gpu))
    if len(candidates) > MOST_LAYOUTS:
        return layout
    best, best_rank = layout, _rank(tables, layout)
    for open_parts in candidates:
        found = checked(tables, open_parts)
        if found is None:
            continue
        misses, latency = _rank(tables, found)
        limit = best_rank[1] * (GAIN if len(found.parts) > len(best.parts) else 1.0)
        if (misses, latency) < (best_rank[0], limit):
            best, best_rank = found, (misses, latency)
    return best


def _layouts(tables: Tables, gpu: GpuType) -> Iterator[list[OpenPart]]:
    """Yield the layouts of one GPU that do not divide a service, each once; those with few parts first."""
    (cuts,) = (cuts for each, cuts in zip(tables.gpus, tables.cuts, strict=True) if each is gpu)
    seen = set()
    for cut in sorted(cuts, key=len):
        if len(cut) > len(tables.services):
            continue
        for places in product(range(len(cut)), repeat=len(tables.services)):
            used = sorted(set(places))
            groups = tuple(
                sorted((cut[part], tuple(place for place, own in enumerate(places) if own == part)) for part in used)
            )
            if groups in seen or len(used) < len(cut):
                continue
            seen.add(groups)
            open_parts = [
                OpenPart(0, share, tables.kind(gpu, cut, share), pieces={place: tables.rates[place] for place in own})
                for share, own in groups
            ]
            if _fits(tables, gpu, open_parts):
                yield open_parts


def _fits(tables: Tables, gpu: GpuType, open_parts: list[OpenPart]) -> bool:
    memory = sum(
        gpu.part_memory_mb + sum(tables.memory_mb[place][each.kind] for place in each.pieces) for each in open_parts
    )
    return memory <= gpu.memory_mb


def _rank(tables: Tables, layout: Layout) -> tuple[float, float]:
    misses = layout.missed / sum(tables.rates) / MISSES_GRAIN
    return float(round(misses)), max(_worst(tables, part) for part in layout.parts)


def _worst(tables: Tables, part: Filled) -> float:
    quantiles = tuple(tables.services[piece.service].quantile for piece in part.pieces)
    return tables.figures.predictor.worst(part.loads, quantiles, tables.care.steps)
