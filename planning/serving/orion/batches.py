"""The largest batch of each service on a part.

A larger batch makes more of the GPU, up to a size; and it keeps the other services of the part waiting, because nothing
interrupts a batch. So the batch is the one with the least time a request among those that every objective allows.
"""

from collections.abc import Sequence
from math import ceil

from .prediction import Load

OWN_ROOM = 0.65
""" A batch takes at most this part of its own objective, because a request that just missed a batch waits for two. """
OTHERS_ROOM = 0.85
""" What a batch may take of the time that another service of the part has to wait. """
CLOSE = 1.015
""" A smaller batch is taken if it costs at most so much more a request. """


def fitted(
    rates: Sequence[float],
    objectives: Sequence[float],
    times: Sequence[tuple[float, ...]],
    delays: Sequence[float],
) -> tuple[Load, ...]:
    """Return the services of a part with the batches that they should form; empty: they cannot share a part.

    Args:
        rates: requests/s of each service on the part.
        objectives: milliseconds.
        times: how long a batch takes, by batch, on this part.
        delays: for how many milliseconds each service waits for a batch to fill.
    """
    left = [objective - delay for objective, delay in zip(objectives, delays, strict=True)]
    waits = [_can_wait_ms(*each) for each in zip(rates, left, times, strict=True)]
    loads = []
    for place, (rate, objective, own) in enumerate(zip(rates, left, times, strict=True)):
        others = [room for other, room in enumerate(waits) if other != place]
        if min(others, default=objective) < own[0] or own[0] > objective:
            return ()
        batch = _largest(own, min([objective * OWN_ROOM, *(room * OTHERS_ROOM for room in others)]))
        loads.append(Load(rate, objectives[place], own[:batch], delays[place]))
    return tuple(loads)


def _can_wait_ms(rate: float, objective: float, times: tuple[float, ...]) -> float:
    """Return how long a service can wait for another one's batch: then its own batch of those who waited must fit."""
    waiting = min(len(times), max(1, ceil(rate * objective * OWN_ROOM / 1000)))
    return objective - times[waiting - 1]


def _largest(times: tuple[float, ...], room: float) -> int:
    """Return the batch with the least time a request of those that take at most `room`."""
    fits = [batch for batch, ms in enumerate(times, 1) if ms <= room] or [1]
    least = min(times[batch - 1] / batch for batch in fits)
    return next(batch for batch in fits if times[batch - 1] / batch <= least * CLOSE)
