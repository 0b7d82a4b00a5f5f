"""How long a batch takes by glet's rules: its table, its overhead, its neighbours, and one tenth on top.

A batch that the table lacks is not interpolated at its share. glet interpolates between the smallest and the largest
share, with a weight that the batch of 32 gives. Figures are rounded to single precision where glet rounds them.
"""

from collections.abc import Iterable

from ..cases import Measured, Model
from ..interference import alpha
from .float32 import single

MAX_BATCH = 32
_MARGIN = single(1.1)

Load = tuple[int, int, int]
""" A service's model, batch and share (percent). """


class Times:
    """The times of all models at the shares that a planner uses, in milliseconds."""

    def __init__(self, measured: Measured, shares: Iterable[int], *, has_interference: bool) -> None:
        self._models = measured.models
        self._constants = measured.constants if has_interference else None
        self.has_interference = self._constants is not None
        self.alone: dict[tuple[int, int], list[float]] = {}
        self._pure: dict[tuple[int, int], list[float]] = {}
        self._overhead: dict[int, list[float]] = {}
        self._alphas: dict[tuple[Load, Load], float] = {}
        for key, model in measured.models.items():
            self._overhead[key] = [0.0, *(single(model.batch_overhead_ms(b)) for b in range(1, MAX_BATCH + 1))]
            for share in shares:
                pure = [0.0, *_row(model, share)]
                self._pure[key, share] = pure
                self.alone[key, share] = [
                    single(single(each + over) * _MARGIN) for each, over in zip(pure, self._overhead[key], strict=True)
                ]

    def overhead(self, model: int, batch: int) -> float:
        """Return what forming a batch adds."""
        return self._overhead[model][batch]

    def beside(self, mine: Load, others: Iterable[Load]) -> float:
        """Return the time of a batch while others run on the GPU's other parts."""
        model, batch, share = mine
        slowdown = self.slowdown(mine, others)
        if slowdown == 1.0:
            return self.alone[model, share][batch]
        pure = self._pure[model, share][batch]
        lost = single(pure * (slowdown - 1.0))
        return single(single(single(pure + self._overhead[model][batch]) + lost) * _MARGIN)

    def slowdown(self, mine: Load, others: Iterable[Load]) -> float:
        """Return the largest slowdown that one of the others causes, at least 1."""
        largest = 1.0
        if self._constants is None:
            return largest
        for other in others:
            found = self._alphas.get((mine, other))
            if found is None:
                found = single(alpha(self._constants, self._used(mine), self._used(other)))
                self._alphas[mine, other] = found
            largest = max(largest, found)
        return largest

    def _used(self, load: Load) -> tuple[float, float]:
        utilisation = self._models[load[0]].utilisation
        return (0.0, 0.0) if utilisation is None else utilisation.at(load[1], load[2])


def _row(model: Model, share: int) -> list[float]:
    """Return the table's times at one share, for each batch from 1."""
    points = model.latency.points
    small, large = _measured(model, min(points)), _measured(model, max(points))
    here = _measured(model, share)
    span = single(small[MAX_BATCH] - large[MAX_BATCH])
    weight = single(single(here[MAX_BATCH] - large[MAX_BATCH]) / span) if span else 0.0
    row = []
    for batch in range(1, MAX_BATCH + 1):
        if batch in here:
            row.append(here[batch])
        else:
            low, high = _between(large, batch), _between(small, batch)
            row.append(single(single(single(high - low) * weight) + low))
    return row


def _measured(model: Model, share: int) -> dict[int, float]:
    """Return the times of the measured batches at one share. Batches 1 and 32 and a missing share are interpolated."""
    points = model.latency.points
    exact = points.get(share, {})
    batches = {1, MAX_BATCH, *(exact or points[max(points)])}
    return {
        batch: single(exact[batch] if batch in exact else model.latency.ms(batch, share))
        for batch in sorted(batches)
        if batch <= MAX_BATCH
    }


def _between(times: dict[int, float], batch: int) -> float:
    """Return the time on the line between the neighbours among the measured batches."""
    if batch in times:
        return times[batch]
    low = max(each for each in times if each < batch)
    high = min(each for each in times if each > batch)
    slope = single(single(times[high] - times[low]) / (high - low))
    return single(single(slope * (batch - low)) + times[low])
