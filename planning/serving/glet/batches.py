"""The largest batch that holds an objective, and what it gives: glet's table of saturated parts and its knee."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from .float32 import single
from .state import Part, State, Task
from .times import MAX_BATCH

_WORTH = single(1.05)
_MARGIN = single(1.1)


@dataclass(frozen=True, slots=True)
class Saturated:
    """What a part gives if it serves one service without a break."""

    batch: int
    throughput: float


def saturated_batch(ms: Callable[[int], float], objective_ms: int) -> int:
    """Return the largest batch whose time is at most half of the objective; 0 if there is none."""
    return _largest(lambda batch: 2 * ms(batch) <= objective_ms)


def residue_batch(ms: Callable[[int], float], objective_ms: int, rate: int, last_ms: float) -> tuple[int, int]:
    """Return the largest batch that fills and is served within the objective, and the rate.

    If not even a batch of 1 does, glet takes 1 where that keeps up with the rate, and changes the rate to what a wait
    of objective - time gives. The batch is 0 if that does not keep up either.

    Args:
        ms: the time of a batch.
        objective_ms: the objective.
        rate: requests/s.
        last_ms: the time of a batch of 1 in that last case.
    """
    batch = _largest(lambda size: single(ms(size) + single(1000 * size / rate)) <= objective_ms)
    if batch or not (last_ms < 1000 / rate and last_ms < objective_ms):
        return batch, rate
    return 1, max(1, int(single(single(1000 / single(objective_ms - last_ms)) * _MARGIN)))


def _largest(holds: Callable[[int], bool]) -> int:
    """Return the largest batch that holds, by bisection; it assumes that times grow, and never tries 32."""
    low, high = 1, MAX_BATCH
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low if low > 1 or holds(1) else 0


def saturated(state: State, task: Task, share: int) -> Saturated:
    """Return what a part of this share gives; a batch of 1 if no batch holds the objective."""
    alone = state.times.alone[task.model, share]
    batch = saturated_batch(alone.__getitem__, task.objective_ms) or 1
    return Saturated(batch, single(batch * 1000.0 / alone[batch]))


def knee(state: State, task: Task) -> int:
    """Return the knee: the share beyond which a larger share adds little throughput.

    Each step from a share to the next one counts if it raises the throughput by at least 5 %. The knee is the end of
    the step that adds most for each percent of the GPU; of equal steps, the first. The step to the whole GPU never
    counts.
    """
    shares = sorted(state.rules.shares)
    best, steepest = shares[0], 0.0
    for low, high in pairwise(shares[:-1]):
        less, more = saturated(state, task, low).throughput, saturated(state, task, high).throughput
        slope = single(single(more - less) / (high - low))
        if single(more / less) >= _WORTH and slope > steepest:
            best, steepest = high, slope
    return best


def batch_on(state: State, part: Part, task: Task) -> int:
    """Return the largest saturated batch on a part, beside its neighbours; 0 if there is none."""
    return saturated_batch(lambda batch: state.ms(part, task.model, batch), task.objective_ms)


def residue_on(state: State, part: Part, model: int, objective_ms: int, rate: int) -> tuple[int, int]:
    """Return the largest residue batch on a part, beside its neighbours, and the rate."""
    return residue_batch(lambda batch: state.ms(part, model, batch), objective_ms, rate, state.ms(part, model, 1))
