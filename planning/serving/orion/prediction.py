"""How many requests miss their objective on a part that serves several services, earliest deadline first.

No formula is known for batches, deadlines and several services at once. So the queue is worked out numerically: many
copies of the part serve Poisson arrivals side by side, a batch of each copy in each step. The arrivals are one fixed
table of exponential quantiles. Each step of the table holds every quantile exactly once, in an order fixed by integer
arithmetic. No number is drawn, and the same part always gives the same answer. Where few requests miss, the
answer can be too low by half, because misses come in clusters; so a plan must stay well below what is allowed.

Refused: M/G/1 formulas with a head-room (they ignore that a batch grows with the backlog, and were wrong by a factor of
two and more beside a simulation), and a chain over all queue lengths (its states grow with the power of the services).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

COPIES = 256
ARRIVALS = 1024
WARM_UP = 24
STEPS = 64
""" Batches of each copy: those that come first and are not counted, and those that are. """

BACKLOG = 2.0
""" The copies do not begin empty: requests have arrived for the time of this many of the longest batches. """

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Load:
    """One service on a part.

    Attributes:
        rate: requests/s.
        objective_ms: time from arrival to answer.
        times_ms: how long a batch takes, by batch; the first is of batch 1. Its length is the largest batch.
        max_delay_ms: how long the oldest request waits for a batch to fill.
    """

    rate: float
    objective_ms: float
    times_ms: tuple[float, ...]
    max_delay_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a part will do.

    Attributes:
        misses: the part of each service's requests that miss their objective (0 to 1).
        busy: the part of the time in which the part runs a batch (0 to 1).
    """

    misses: tuple[float, ...]
    busy: float


class Predictor:
    """Predicts misses, and keeps what it has predicted. Its answers do not depend on what it was asked before."""

    def __init__(self) -> None:
        self._tables: list[Floats] = []
        self._known: dict[tuple[tuple[Load, ...], int], Prediction] = {}
        self._worst: dict[tuple[tuple[Load, ...], tuple[float, ...], int], float] = {}

    def predicted(self, loads: tuple[Load, ...], steps: int = STEPS) -> Prediction:
        """Return what a part will do; with fewer steps it costs less and is less exact."""
        if (loads, steps) not in self._known:
            self._known[loads, steps] = self._worked_out(loads, steps)
        return self._known[loads, steps]

    def worst(self, loads: tuple[Load, ...], quantiles: tuple[float, ...], steps: int = STEPS) -> float:
        """Return the largest latency among the services, each at its quantile and over its objective."""
        if (loads, quantiles, steps) not in self._worst:
            self._worst[loads, quantiles, steps] = self._worst_worked_out(loads, quantiles, steps)
        return self._worst[loads, quantiles, steps]

    def _worst_worked_out(self, loads: tuple[Load, ...], quantiles: tuple[float, ...], steps: int) -> float:
        queues, shares = self._warm(loads), [list[Floats]() for _ in loads]
        for _ in range(steps):
            step = queues.step()
            waited = (queues.clock[:, None] - step.batch) / queues.objective[step.chosen][:, None]
            is_served = queues.window < step.size[:, None]
            for place, share in enumerate(shares):
                share.append(waited[is_served & (step.chosen == place)[:, None]])
        found = [np.concatenate(share) for share in shares]
        return max(
            (float(np.quantile(each, quantile)) for each, quantile in zip(found, quantiles, strict=True) if len(each)),
            default=0.0,
        )

    def _warm(self, loads: tuple[Load, ...]) -> "_Queues":
        queues = _Queues(loads, [self._table(place) for place in range(len(loads))])
        for _ in range(WARM_UP):
            queues.step()
        return queues

    def _worked_out(self, loads: tuple[Load, ...], steps: int) -> Prediction:
        queues = self._warm(loads)
        began = queues.clock
        busy = np.zeros(COPIES)
        served, missed = np.zeros(len(loads)), np.zeros(len(loads))
        for _ in range(steps):
            step = queues.step()
            served += np.bincount(step.chosen, step.size, len(loads))
            missed += np.bincount(step.chosen, step.late, len(loads))
            busy += step.took
        misses = missed / np.maximum(served, 1.0)
        return Prediction(tuple(float(value) for value in misses), float(busy.sum() / (queues.clock - began).sum()))

    def _table(self, place: int) -> Floats:
        while len(self._tables) <= place:
            self._tables.append(_arrivals(len(self._tables)))
        return self._tables[place]


class _Step(NamedTuple):
    """One batch of each copy: its service, when those arrived who may be in it, its size, how many are late, its time.

    The first `size` of `batch` (copies x largest batch) are in the batch.
    """

    chosen: Places
    batch: Floats
    size: Places
    late: Places
    took: Floats


class _Queues:
    """The copies of a part: which request comes next for each service (services x copies), and each copy's clock."""

    def __init__(self, loads: tuple[Load, ...], tables: list[Floats]) -> None:
        count = len(loads)
        rows = [table * (1000.0 / load.rate) for table, load in zip(tables, loads, strict=True)]
        self.arrivals = np.concatenate(rows)
        self.period = self.arrivals.reshape(-1, ARRIVALS)[:, -1:].copy()
        self.largest = np.array([len(load.times_ms) for load in loads])
        width = int(self.largest.max())
        self.times = np.array([(0.0, *load.times_ms) + (0.0,) * (width - len(load.times_ms)) for load in loads])
        self.objective = np.array([load.objective_ms for load in loads])
        delays = np.array([load.max_delay_ms for load in loads])[:, None]
        self.delays = delays if delays.any() else None
        self.copies = np.arange(COPIES)
        self.window = np.arange(width)
        self.begin = np.arange(count * COPIES).reshape(count, COPIES) * ARRIVALS
        self.next = self.begin.copy()
        self.clock = np.full(COPIES, BACKLOG * float(self.times.max()))
        self.ahead = ARRIVALS - width

    def step(self) -> _Step:
        """Run one batch of each copy."""
        self.ahead -= len(self.window)
        if self.ahead < 0:
            self.ahead = ARRIVALS - len(self.window) - int((self.next - self.begin).max())
        if self.ahead < 0:
            self._go_round()
        oldest = self.arrivals.take(self.next)
        ready = oldest
        if self.delays is not None:
            ready = np.minimum(oldest + self.delays, self.arrivals.take(self.next + self.largest[:, None] - 1))
        clock = np.maximum(self.clock, ready.min(axis=0))
        deadlines = np.where(ready <= clock, oldest + self.objective[:, None], np.inf)
        chosen = deadlines.argmin(axis=0)
        first = self.next[chosen, self.copies]
        batch = self.arrivals.take(first[:, None] + self.window)
        size = np.minimum((batch <= clock[:, None]).sum(axis=1), self.largest[chosen])
        took = self.times[chosen, size]
        self.clock = clock + took
        late = np.minimum((batch < (self.clock - self.objective[chosen])[:, None]).sum(axis=1), size)
        self.next[chosen, self.copies] += size
        return _Step(chosen, batch, size, late, took)

    def _go_round(self) -> None:
        """Begin each row of arrivals at its next request; those that are used up come again after its end."""
        places = (self.next - self.begin).reshape(-1, 1) + np.arange(ARRIVALS)
        rows = np.take_along_axis(self.arrivals.reshape(-1, ARRIVALS), places % ARRIVALS, axis=1)
        rows += (places >= ARRIVALS) * self.period
        self.arrivals = rows.reshape(-1)
        self.next = self.begin.copy()
        self.ahead = ARRIVALS - 2 * len(self.window)


def _arrivals(table: int) -> Floats:
    """Return the arrival times of Poisson arrivals of rate 1 (copies x arrivals, flat)."""
    cells = np.arange(COPIES * ARRIVALS, dtype=np.uint64) + np.uint64(table * COPIES * ARRIVALS + 1)
    mixed = cells * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    order = mixed.reshape(COPIES, ARRIVALS).argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    return np.asarray(-np.log1p(-(order + 0.5) / COPIES)).cumsum(axis=1).reshape(-1)
