"""Services put into parts: each goes to the first parts that have room, up to one level of load for all parts.

So a service is split only where a part is full. Refused: a mixed-integer program for the placement. Whether services
hold their objectives together on a part is a prediction and not a linear limit, so each solution would have to be
checked and excluded in turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .tables import Tables

UNITS = 20
""" A service is split over parts in this many units of its rate, and no piece is smaller than two units. """


@dataclass(slots=True)
class OpenPart:
    """One part while it fills.

    Attributes:
        gpu: its GPU, from 0.
        share: in percent.
        kind: the kind of part; parts of one kind have the same capacities.
        load: the sum of rate over capacity.
        limit: the highest sum that its services can have together.
        pieces: rate by service.
    """

    gpu: int
    share: int
    kind: int
    load: float = 0.0
    limit: float = 1.0
    pieces: dict[int, float] = field(default_factory=dict)


def fill(tables: Tables, open_parts: Sequence[OpenPart], free_mb: list[float], level: float) -> bool:
    """Fill the parts; return whether every service got its rate.

    Args:
        tables: the services, in the order in which they are placed, and their capacities.
        open_parts: the parts, empty, in the order in which they are filled.
        free_mb: what each GPU has for services; changed.
        level: the highest load of a part, as a part of what its services can do together.
    """
    for service, rate in enumerate(tables.rates):
        unit = rate / UNITS
        left = UNITS
        capacities, memories = tables.capacity[service], tables.memory_mb[service]
        for open_part in open_parts:
            capacity = capacities[open_part.kind]
            room = level * open_part.limit - open_part.load
            if room * capacity < 2 * unit:
                continue
            memory = memories[open_part.kind]
            limit = open_part.limit
            if open_part.pieces:
                for other in open_part.pieces:
                    together = tables.together(service, other, open_part.kind)
                    if together < limit:
                        limit = together
                room = level * limit - open_part.load
            else:
                memory += tables.kinds[open_part.kind].gpu.part_memory_mb
            units = min(left, int(room * capacity / unit + 1e-9))
            units -= left - units == 1
            if units < 2 or memory > free_mb[open_part.gpu]:
                continue
            free_mb[open_part.gpu] -= memory
            open_part.pieces[service] = units * unit
            open_part.load += units * unit / capacity
            open_part.limit = limit
            left -= units
            if not left:
                break
        if left:
            return False
    return True
