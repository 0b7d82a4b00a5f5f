"""Puts the residues of one service on one part, and joins the parts of GPUs that serve nothing."""

from .batches import residue_on, saturated
from .float32 import single
from .state import IGNORED_RATE, Part, Placed, State, Task


def merge(state: State, task: Task) -> bool:
    """Merge a service's residues, together with what is left of its rate. Return whether nothing is left."""
    residues = [
        part
        for part in state.parts()
        if part.occupancy < 1 and len(part.services) == 1 and part.services[0].model == task.model
    ]
    rate = task.rate
    for part in residues:
        rate = int(single(rate + part.services[0].throughput))
    least = min(residues, key=lambda part: saturated(state, task, part.share).throughput, default=None)
    if (
        least is None
        or (len(residues) == 1 and rate < IGNORED_RATE)
        or saturated(state, task, least.share).throughput < rate
    ):
        return task.rate <= IGNORED_RATE
    share = least.share
    for part in residues:
        state.unload(part, task.model)
        part.services, part.occupancy, part.duty_ms = [], 0.0, 0.0
    _put(state, task, rate, share)
    if task.rate > IGNORED_RATE:
        return False
    if state.rules.may_divide:
        _join(state)
    return True


def _put(state: State, task: Task, rate: int, share: int) -> None:
    """Put the whole rate on the first empty part of a share. glet does not count the memory here."""
    for part in state.parts():
        if part.services or part.share != share or not state.fits(part, task.model):
            continue
        batch, rate = residue_on(state, part, task.model, task.objective_ms, rate)
        if not batch:
            continue
        part.duty_ms = single(batch * 1000.0 / rate)
        part.occupancy = single(state.ms(part, task.model, batch) / part.duty_ms)
        throughput = single(batch * 1000.0 / part.duty_ms)
        part.services.append(Placed(task.model, int(throughput), task.objective_ms, batch, throughput))
        task.rate = max(0, int(single(rate - throughput)))
        return


def _join(state: State) -> None:
    for gpu in state.gpus:
        if len(gpu.parts) > 1 and not any(part.services for part in gpu.parts):
            first: Part = gpu.parts[0]
            first.share, first.copy = 100, 0
            del gpu.parts[1:]
