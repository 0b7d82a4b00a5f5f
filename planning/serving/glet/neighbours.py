"""Makes parts hold their objectives again beside a new neighbour: smaller batches, at a lower throughput."""

from .float32 import single
from .state import Part, State

SLACK = 1.05
""" glet reduces a residue part's batch only if it takes longer than this many times its objective. """


def adjust_saturated(state: State, part: Part) -> int | None:
    """Reduce a saturated part's batch until twice its time is within the objective.

    Returns:
        The requests/s that the part lost, rounded down; None if no batch holds the objective, or several services
        fill the part.
    """
    if len(part.services) != 1:  # glet's own code ends with a failed assertion
        return None
    placed = part.services[0]
    batch, before, duty_ms = placed.batch, placed.throughput, part.duty_ms
    ms = state.ms(part, placed.model, batch)
    if 2 * ms < placed.objective_ms:
        placed.throughput = single(batch * 1000.0 / ms)
        return max(0, int(single(before - placed.throughput)))
    while placed.objective_ms < 2 * ms:
        batch -= 1
        if not batch:
            return None
        duty_ms = ms = state.ms(part, placed.model, batch)
    placed.batch, part.duty_ms = batch, duty_ms
    placed.throughput = single(batch * (1000.0 / duty_ms))
    return max(0, int(single(before - placed.throughput)))


def adjust_residue(state: State, part: Part) -> bool:
    """Reduce the batches of a part that is not saturated until they hold their objectives; False if none do."""
    total_ms = 0.0
    for placed in part.services:
        total_ms = single(total_ms + state.ms(part, placed.model, placed.batch))
    if all(single(total_ms + part.duty_ms) <= placed.objective_ms * SLACK for placed in part.services):
        return True
    found: list[tuple[int, float]] = []
    for placed in part.services:
        batch, duty_ms = placed.batch, part.duty_ms
        ms = state.ms(part, placed.model, batch)
        others_ms = single(total_ms - ms)
        while placed.objective_ms < single(single(others_ms + ms) + duty_ms):
            batch -= 1
            if not batch:
                return False
            ms = state.ms(part, placed.model, batch)
            duty_ms = single(duty_ms * single(batch / placed.batch))
        found.append((batch, duty_ms))
    part.duty_ms = min(duty_ms for _, duty_ms in found)
    total_ms = 0.0
    for placed, (batch, _) in zip(part.services, found, strict=True):
        placed.batch, placed.throughput = batch, single(1000 * batch / part.duty_ms)
        total_ms = single(total_ms + state.ms(part, placed.model, batch))
    part.occupancy = single(total_ms / part.duty_ms)
    return True
