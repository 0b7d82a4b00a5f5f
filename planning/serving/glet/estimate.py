"""The parts that a service would take if every share were free: glet's estimate, and the greedy planner's."""

from .batches import knee, residue_batch, saturated
from .float32 import single
from .state import IGNORED_RATE, Part, Placed, State, Task


def estimate(state: State, task: Task, most: int) -> list[Part] | None:
    """Return the parts for a service's rate, in the order in which they are found.

    Saturated parts at the knee come first, then the residue. Of more than `most` parts the others are left out: a
    caller that gets more parts than GPUs hold refuses them anyway. None: no batch keeps up with the rate.
    """
    if task.rate <= IGNORED_RATE:
        return []
    if state.rules.is_greedy:
        return _greedy(state, task, most)
    share = knee(state, task)
    full = saturated(state, task, share)
    rate, parts = task.rate, list[Part]()
    while full.throughput < rate and len(parts) < most:
        part = Part(len(parts), share, 0, state.times.alone[task.model, share][full.batch], 1.0)
        part.services.append(Placed(task.model, rate, task.objective_ms, full.batch, full.throughput))
        parts.append(part)
        rate = int(single(rate - full.throughput))
        if rate <= IGNORED_RATE:
            return parts
    if len(parts) < most:
        residue = _residue(state, task, rate, share, len(parts))
        if residue is None:
            return None
        parts.append(residue)
    return parts


def _residue(state: State, task: Task, rate: int, share: int, number: int) -> Part | None:
    alone = state.times.alone
    at_knee = alone[task.model, share]
    batch, rate = residue_batch(at_knee.__getitem__, task.objective_ms, rate, at_knee[1])
    if not batch:
        return None
    chosen = share
    for smaller in state.rules.shares:
        if smaller > share:
            continue
        ms, duty_ms = alone[task.model, smaller][batch], single(batch * 1000.0 / rate)
        if duty_ms < ms or task.objective_ms < single(ms + duty_ms):
            break
        chosen = smaller
    ms = alone[task.model, chosen][batch]
    duty_ms = max(single(batch * single(1000.0 / rate)), ms)
    part = Part(number, chosen, 0, duty_ms, single(ms / duty_ms))
    part.services.append(Placed(task.model, rate, task.objective_ms, batch, single(batch * 1000.0 / duty_ms)))
    return part


def _greedy(state: State, task: Task, most: int) -> list[Part]:
    """Return the smallest share that gives more than what is left, or else the largest, until nothing is left."""
    rate, parts = task.rate, list[Part]()
    shares = sorted(state.rules.shares)
    while rate > 0 and len(parts) < most:
        for share in shares:
            full = saturated(state, task, share)
            if int(full.throughput) > rate:
                break
        throughput = int(full.throughput)
        duty_ms = single(full.batch * (1000.0 / rate))
        ms = state.times.alone[task.model, share][full.batch]
        part = Part(len(parts), share, 0, duty_ms, single(ms / duty_ms))
        part.services.append(Placed(task.model, rate, task.objective_ms, full.batch, float(throughput)))
        parts.append(part)
        rate -= max(1, throughput)
    return parts
