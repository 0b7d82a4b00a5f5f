"""Best fit: which empty part an estimated part takes, first for all as a trial, then for real."""

from collections.abc import Sequence

from .batches import batch_on, residue_on
from .float32 import single
from .neighbours import adjust_residue, adjust_saturated
from .state import IGNORED_RATE, Gpu, Part, State, Task

_NONE = 200


def fits_all(state: State, wanted: Sequence[Part]) -> bool:
    """Return whether best fit finds a place for each part, without placing any.

    A part in a whole GPU leaves the rest of that GPU for one more part; any other place is used up.
    """
    left: dict[int, int] = {}
    used: set[int] = set()
    for part in wanted:
        while True:
            found = best_fit(state, part, used)
            if found is None:
                return False
            free = left.setdefault(id(found), found.share)
            if free >= part.share:
                break
            used.add(id(found))
        left[id(found)] = free - part.share if state.rules.may_divide and free == 100 else 0
        if not left[id(found)]:
            used.add(id(found))
    return True


def best_fit(state: State, wanted: Part, used: set[int]) -> Part | None:
    """Return the empty part whose share is closest; a whole GPU counts as exact, and the later of equals wins."""
    least, found = _NONE, None
    for gpu in state.gpus:
        for part in gpu.parts:
            if part.services or part.share < wanted.share or id(part) in used or not _holds(state, gpu, part, wanted):
                continue
            if part.share == 100 and state.rules.has_parts:
                least, found = 0, part
            if least >= part.share - wanted.share:
                least, found = part.share - wanted.share, part
    return found


def _holds(state: State, gpu: Gpu, part: Part, wanted: Part) -> bool:
    (placed,) = wanted.services
    if not state.fits(part, placed.model):
        return False
    ms = state.ms(part, placed.model, placed.batch)
    if single(ms + wanted.duty_ms) > placed.objective_ms:
        return False
    return part.share == 100 or _neighbour_holds(state, gpu, part)


def _neighbour_holds(state: State, gpu: Gpu, part: Part) -> bool:
    """Return whether the GPU's other part holds its objectives by glet's check, which leaves the newcomer out."""
    other = next((each for each in gpu.parts if not each.is_same(part)), None)
    if other is None:
        return True
    for placed in other.services:
        ms = single(state.times.overhead(placed.model, placed.batch) + other.duty_ms)
        if single(ms + other.duty_ms) > placed.objective_ms:
            return False
    return True


def place_all(state: State, task: Task, wanted: Sequence[Part]) -> bool:
    """Place estimated parts, one after the other. What was placed stays, even if a later part finds no place."""
    for part in wanted:
        found = best_fit(state, part, set())
        if found is None or not _place(state, task, part, found):
            return False
    if task.rate + task.lost > IGNORED_RATE:
        return False
    task.rate = 0
    return True


def _place(state: State, task: Task, wanted: Part, found: Part) -> bool:
    (placed,) = wanted.services
    share = wanted.share
    if found.share not in (100, share) and not _grow(state, wanted, found.share):
        return False
    if found.share == 100 and share < 100 and state.rules.may_divide:
        state.divide(found, share)
    if state.rules.may_divide:
        found.share = wanted.share
    found.duty_ms, found.occupancy, found.services = wanted.duty_ms, wanted.occupancy, [placed]
    state.load(found, placed.model)
    if state.rules.has_interference:
        for part in state.gpus[found.gpu].parts:
            if part.occupancy != 1:
                adjust_residue(state, part)
                continue
            lost = adjust_saturated(state, part)
            if lost is None:
                return False
            task.lost += lost
    task.rate = int(single(task.rate - placed.throughput))
    return True


def _grow(state: State, part: Part, share: int) -> bool:
    """Give an estimated part a larger share, with a batch for it."""
    (placed,) = part.services
    is_saturated = part.occupancy == 1
    part.share = share
    if is_saturated:
        task = Task(placed.model, placed.rate, placed.objective_ms)
        placed.batch = batch_on(state, part, task)
    else:
        placed.batch, placed.rate = residue_on(state, part, placed.model, placed.objective_ms, placed.rate)
    if not placed.batch:
        return False
    ms = state.ms(part, placed.model, placed.batch)
    part.duty_ms = ms if is_saturated else max(single(placed.batch * 1000.0 / placed.rate), ms)
    placed.throughput = single(placed.batch * 1000.0 / part.duty_ms)
    part.occupancy = single(ms / part.duty_ms)
    return True
