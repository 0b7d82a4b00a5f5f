"""A filled layout is checked: batches, real slowdowns, and the misses that are predicted for each service."""

from collections.abc import Sequence
from dataclasses import dataclass

from .capacities import allowed, rounded
from .filling import OpenPart
from .prediction import Load, Prediction
from .services import Occupant
from .tables import Tables, Whole

GRAIN = 0.01
""" Slowdowns of a plan are rounded up to this grain. """


@dataclass(frozen=True, slots=True)
class Piece:
    """One service on a part: its place among the services, its rate and largest batch, and the misses predicted."""

    service: int
    rate: float
    batch: int
    misses: float


@dataclass(frozen=True, slots=True)
class Filled:
    """One part with services.

    Attributes:
        gpu: its GPU, from 0 in the layout.
        kind: the kind of part.
        pieces: its services.
        busy: the part of the time in which it runs a batch.
        loads: the services as the prediction saw them.
    """

    gpu: int
    kind: int
    pieces: tuple[Piece, ...]
    busy: float
    loads: tuple[Load, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Parts that hold every objective.

    Attributes:
        parts: in the order of GPUs.
        missed: requests/s that miss their objective, over all services.
    """

    parts: tuple[Filled, ...]
    missed: float


def checked(tables: Tables, open_parts: Sequence[OpenPart]) -> Layout | None:
    """Return the layout; None if a service would miss its objective too often."""
    used = _widened(tables, [open_part for open_part in open_parts if open_part.pieces])
    occupants: list[list[Occupant]] = []
    for place, open_part in enumerate(used):
        loads = _loads(tables, open_part, [tables.slowdown[service][open_part.kind] for service in open_part.pieces])
        occupants.append(
            [
                Occupant(tables.services[service].name, len(load.times_ms), open_part.share, place)
                for service, load in zip(open_part.pieces, loads, strict=bool(loads))
            ]
        )
    if not all(occupants):
        return None
    parts = []
    for place, open_part in enumerate(used):
        gpu = tables.kinds[open_part.kind].gpu
        others = [
            each for other, there in enumerate(used) if other != place and there.gpu == open_part.gpu
            for each in occupants[other]
        ]  # fmt: skip
        slowdowns = [rounded(gpu.slowdown(mine, others), GRAIN) for mine in occupants[place]]
        loads = _loads(tables, open_part, slowdowns)
        if not loads:
            return None
        parts.append(_filled(open_part, loads, tables.figures.predictor.predicted(loads, tables.care.steps)))
    return _layout(tables, parts)


def _widened(tables: Tables, used: Sequence[OpenPart]) -> list[OpenPart]:
    """Give the whole GPU to a part that has no neighbour."""
    found = []
    for open_part in sorted(used, key=lambda open_part: (open_part.gpu, -open_part.share, min(open_part.pieces))):
        if sum(other.gpu == open_part.gpu for other in used) == 1:
            whole = tables.kind(tables.kinds[open_part.kind].gpu, Whole, 100)
            open_part = OpenPart(open_part.gpu, 100, whole, open_part.load, open_part.limit, open_part.pieces)
        found.append(open_part)
    return found


def _loads(tables: Tables, open_part: OpenPart, slowdowns: Sequence[float]) -> tuple[Load, ...]:
    services = [tables.services[place] for place in open_part.pieces]
    gpu = tables.kinds[open_part.kind].gpu.name
    return tables.figures.loads(services, list(open_part.pieces.values()), gpu, open_part.share, slowdowns)


def _filled(open_part: OpenPart, loads: tuple[Load, ...], prediction: Prediction) -> Filled:
    pieces = tuple(
        Piece(service, load.rate, len(load.times_ms), misses)
        for service, load, misses in zip(open_part.pieces, loads, prediction.misses, strict=True)
    )
    return Filled(open_part.gpu, open_part.kind, pieces, prediction.busy, loads)


def _layout(tables: Tables, parts: Sequence[Filled]) -> Layout | None:
    missed = [0.0] * len(tables.services)
    for part in parts:
        for piece in part.pieces:
            missed[piece.service] += piece.misses * piece.rate
    for service, lost in zip(tables.services, missed, strict=True):
        if lost > allowed(service, tables.margin) * service.rate:
            return None
    return Layout(tuple(parts), sum(missed))
