"""Puts what is left of a service on parts that other services do not fill."""

from collections.abc import Sequence

from .float32 import single
from .state import IGNORED_RATE, Part, Placed, State, Task
from .times import MAX_BATCH

MOST_SERVICES = 3


def time_share(state: State, task: Task, former: Sequence[Part]) -> bool:
    """Place a service's rate on parts with time left; False if some of it finds no place.

    Args:
        state: changed.
        task: its rate is reduced by what was placed.
        former: if not empty, only these parts may be used.
    """
    candidates = []
    for part in state.parts():
        if not state.fits(part, task.model):
            continue
        if former:
            if any(part.is_same(each) for each in former):
                candidates.append(part)
        elif part.occupancy < 1 and len(part.services) < MOST_SERVICES:
            candidates.append(part)
    candidates.sort(key=lambda part: -part.occupancy)
    while task.rate + task.lost > IGNORED_RATE:
        if not any(_join(state, task, part) for part in candidates):
            return False
    return True


def _join(state: State, task: Task, part: Part) -> bool:
    if part.occupancy >= 1 or any(each.model == task.model for each in part.services):
        return False
    found = _batch(state, task, part)
    if found is None:
        return False
    batch, duty_ms = found
    total_ms = state.ms(part, task.model, batch)
    for each in part.services:
        total_ms = single(total_ms + state.ms(part, each.model, min(_other_batch(each, duty_ms), MAX_BATCH)))
    if single(total_ms / duty_ms) > 1:
        return False
    total_ms = single(total_ms + duty_ms)
    if any(total_ms > objective for objective in (task.objective_ms, *(each.objective_ms for each in part.services))):
        return False
    _add(state, task, part, batch, duty_ms)
    return True


def _batch(state: State, task: Task, part: Part) -> tuple[int, int] | None:
    """Return the largest batch that fits the part's time, and the duty cycle (ms, rounded down) that it needs."""
    for batch in range(min(int(part.duty_ms * (task.rate / 1000.0)), MAX_BATCH), 0, -1):
        duty_ms = int(batch * 1000.0 / task.rate)
        ms = state.ms(part, task.model, batch)
        if not duty_ms or single(duty_ms + ms) >= task.objective_ms:
            continue
        if single(ms / duty_ms) < 1.0 - part.occupancy:
            return (batch, duty_ms) if duty_ms <= part.duty_ms else None
    return None


def _other_batch(placed: Placed, duty_ms: int) -> int:
    """Return the batch of a service that is there already, in a new duty cycle."""
    return max(1, int(duty_ms / (1000.0 / max(1, placed.rate))))


def _add(state: State, task: Task, part: Part, batch: int, duty_ms: int) -> None:
    throughput = single(batch * (1000.0 / duty_ms))
    part.services.append(Placed(task.model, task.rate, task.objective_ms, batch, throughput))
    task.rate = max(0, int(single(task.rate - throughput)))
    state.load(part, task.model)
    occupancy = 0.0
    for each in part.services:
        if each.model != task.model:
            each.batch = min(_other_batch(each, duty_ms), MAX_BATCH)
            each.throughput = single(each.batch * 1000.0 / duty_ms)
        occupancy = single(occupancy + single(state.ms(part, each.model, each.batch) / duty_ms))
    part.duty_ms, part.occupancy = float(duty_ms), occupancy
