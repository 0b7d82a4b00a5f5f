"""What glet tries when best fit fails: it fills given parts one after the other, whatever their shares."""

from .batches import batch_on, residue_on
from .estimate import estimate
from .float32 import single
from .neighbours import adjust_residue, adjust_saturated
from .network import LIMIT_GBIT_S, cut, gbit_s
from .state import IGNORED_RATE, Part, Placed, State, Task


def readjust(state: State, task: Task, given: list[Part]) -> None:
    """Fill parts with a service until its rate is served: saturated parts first, then residues.

    Args:
        state: changed.
        task: its rate is reduced by what was placed.
        given: the parts that may be used, largest first. A whole GPU among them is divided.
    """
    if state.rules.has_interference:
        task.rate, task.lost = task.rate + task.lost, 0
    given = sorted(given, key=lambda part: -part.share)
    if _saturate(state, task, given):
        _add_residues(state, task, given)


def _saturate(state: State, task: Task, given: list[Part]) -> bool:
    """Fill parts with saturated batches; True if the next part gives more than what is left."""
    while task.rate + task.lost > IGNORED_RATE and given:
        part = given[0]
        batch = _divide(state, task, given) if _is_divided(state, part) else batch_on(state, part, task) or 1
        if not batch:
            return False
        ms = state.ms(part, task.model, batch)
        throughput = single(batch * (1000.0 / ms))
        if throughput > task.rate:
            return True
        placed = Placed(task.model, task.rate, task.objective_ms, batch, throughput)
        if not cut(placed, state.gpus[part.gpu]):
            return False
        if state.fits(part, task.model):
            part.occupancy, part.duty_ms = 1.0, ms
            _add(state, task, part, placed)
        del given[0]
    return False


def _add_residues(state: State, task: Task, given: list[Part]) -> None:
    while task.rate > IGNORED_RATE and given:
        part = given[0]
        if _is_divided(state, part) and not _divide(state, task, given):
            return
        batch, task.rate = residue_on(state, part, task.model, task.objective_ms, task.rate)
        if not batch:
            return
        part.duty_ms = single(batch * (1000.0 / task.rate))
        throughput = single(1000.0 * batch / part.duty_ms)
        placed = Placed(task.model, task.rate, task.objective_ms, batch, throughput)
        if not cut(placed, state.gpus[part.gpu]):
            return
        part.occupancy = single(state.ms(part, task.model, placed.batch) / part.duty_ms)
        if state.fits(part, task.model):
            _add(state, task, part, placed)
        del given[0]


def _is_divided(state: State, part: Part) -> bool:
    return part.share == 100 and state.rules.has_parts and state.rules.may_divide


def _divide(state: State, task: Task, given: list[Part]) -> int:
    """Divide the first given part, a whole GPU, by an estimate for the rate that is left; the rest joins behind it.

    Returns:
        The estimate's batch; 0 if there is none.
    """
    wanted = estimate(state, task, 1)
    if not wanted:
        return 0
    if wanted[0].share < 100:
        given.append(state.divide(given[0], wanted[0].share))
        given[1:] = sorted(given[1:], key=lambda part: -part.share)
    return wanted[0].services[0].batch


def _add(state: State, task: Task, part: Part, placed: Placed) -> None:
    """Put a service on an empty part, and take it back if the network or a neighbour does not hold."""
    part.services.append(placed)
    if _must_revert(state, part):
        part.services, part.occupancy, part.duty_ms = [], 0.0, 0.0
        return
    task.rate, task.lost = task.rate + task.lost, 0
    task.rate = max(0, int(single(task.rate - placed.throughput)))
    state.load(part, task.model)


def _must_revert(state: State, part: Part) -> bool:
    gpu = state.gpus[part.gpu]
    must = gbit_s(gpu) > LIMIT_GBIT_S
    if not state.rules.has_interference:
        return must
    for other in gpu.parts:
        if other.copy == part.copy and other.share == part.share:
            continue
        if other.occupancy >= 1:
            if adjust_saturated(state, other) is None:
                return True
        elif not adjust_residue(state, other):
            must = True
    return must
