"""How many GPUs a fleet needs if each workload has GPUs of its own."""

from math import ceil, floor

from .fleets import RESTART_H, TOLERANCE_H, Batch, Fleet, Training
from .layout import fewest


def separate(fleet: Fleet) -> dict[str, int]:
    """Return the GPUs of each workload.

    A service needs as many as its busiest hour. A batch has whole GPUs in its window. The jobs of a training follow
    each other on groups of as many GPUs as one job has; a job moves between groups where that saves a group.

    Args:
        fleet: every workload must fit on GPUs of its own.
    """
    found = {}
    for service in fleet.services:
        found[service.name] = fewest(service, service.peak, 0.0) if service.peak > 0 else 0
    for batch in fleet.batches:
        found[batch.name] = alone(batch)
    for training in fleet.training:
        found[training.name] = alone(training)
    return found


def alone(each: Batch | Training) -> int:
    """Return the GPUs of a batch or a training that has GPUs of its own."""
    return _batch(each) if isinstance(each, Batch) else _training(each)


def _batch(batch: Batch) -> int:
    return ceil(batch.work_gpu_h / (batch.to_h - batch.from_h) - TOLERANCE_H)


def _training(training: Training) -> int:
    alone_h, by_h = training.alone_h, training.by_h
    if not training.count or alone_h <= TOLERANCE_H:
        return 0
    kept = ceil(training.count / max(1, floor(by_h / alone_h + 1e-9)))
    groups = ceil(training.count * alone_h / by_h - 1e-9)
    while groups < kept and training.count * alone_h + (groups - 1) * RESTART_H > groups * by_h:
        groups += 1
    return min(groups, kept) * training.gpus
