"""One part that serves one batch at a time, for one or several services.

Orders: `fifo` takes the service whose oldest request arrived first, `edf` the service whose oldest request has the
earliest deadline. At equal times the plan's order decides. Batches are not interrupted.

Refused: a heap of arrivals and ends of batches. The time at which a service's next batch may begin follows from its
arrivals alone, so the loop needs one step for a batch.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DROP_RULES = ("none", "lazy", "eager")


@dataclass(frozen=True)
class Drop:
    """Which requests a part drops when it forms a batch, from the head of the queue.

    Attributes:
        rule: `none`; `lazy`: the request has waited longer than the limit; `eager`: the request's wait and the time of
            the batch that would begin are longer than the limit.
        ratio: the limit is `ratio` x the objective.
    """

    rule: str = "none"
    ratio: float = 1.0


NONE = Drop()


@dataclass(frozen=True)
class Queue:
    """One service on a part; times in nanoseconds.

    Attributes:
        arrivals: when requests arrive, ascending.
        times: how long a batch of 0, 1, 2, .. requests takes; the last one is the largest batch.
        max_delay: how long the oldest request waits for a batch to fill.
        objective: the longest latency that is no miss.
    """

    arrivals: Sequence[float]
    times: Sequence[float]
    max_delay: float = 0.0
    objective: float = math.inf

    @property
    def batch(self) -> int:
        """The most requests that one batch holds."""
        return len(self.times) - 1

    def ready(self, head: int) -> float:
        """Return when a batch may begin whose oldest request is the request `head`; infinity without requests."""
        arrivals, last = self.arrivals, head + len(self.times) - 2
        if last < len(arrivals):
            return min(arrivals[last], arrivals[head] + self.max_delay)
        return arrivals[head] + self.max_delay if head < len(arrivals) else math.inf

    def drop(self, head: int, arrived: int, now: float, rule: Drop) -> int:
        """Return the first request that is not dropped at a time; the requests head .. arrived - 1 are waiting."""
        limit, arrivals = rule.ratio * self.objective, self.arrivals
        if rule.rule == "lazy":
            while head < arrived and now - arrivals[head] > limit:
                head += 1
        elif rule.rule == "eager":
            while head < arrived and now - arrivals[head] + self.times[min(arrived - head, self.batch)] > limit:
                head += 1
        return head


@dataclass(frozen=True)
class Served:
    """What became of a queue's requests, in the order of their arrival; times in nanoseconds.

    Attributes:
        starts: when the request's batch began; NaN if the request was dropped.
        ends: when the request's batch ended; NaN if the request was dropped.
        batches: the number of requests in the request's batch; 0 if the request was dropped.
        busy: how long the service's batches had the part.
    """

    starts: np.ndarray
    ends: np.ndarray
    batches: np.ndarray
    busy: float


class Record:
    """Collects the batches of one queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._starts: list[float] = []
        self._ends: list[float] = []
        self._sizes: list[int] = []
        self._dropped: list[int] = []

    def drop(self, first: int, end: int) -> None:
        """Note that the requests first .. end - 1 were dropped."""
        self._dropped.extend(range(first, end))

    def begin(self, start: float, size: int) -> None:
        """Note that a batch began."""
        self._starts.append(start)
        self._sizes.append(size)

    def end(self, end: float) -> None:
        """Note that the batch that began last has ended."""
        self._ends.append(end)

    def served(self) -> Served:
        """Return what became of the requests."""
        count, sizes = len(self._queue.arrivals), np.array(self._sizes, dtype=np.int64)
        starts, ends, batches = np.full(count, np.nan), np.full(count, np.nan), np.zeros(count, dtype=np.int64)
        is_served = np.ones(count, dtype=bool)
        is_served[self._dropped] = False
        starts[is_served] = np.repeat(np.array(self._starts, dtype=float), sizes)
        ends[is_served] = np.repeat(np.array(self._ends, dtype=float), sizes)
        batches[is_served] = np.repeat(sizes, sizes)
        busy = float(np.asarray(self._queue.times, dtype=float)[sizes].sum())
        return Served(starts, ends, batches, busy)


def serve(queues: Sequence[Queue], order: str, drop: Drop = NONE) -> list[Served]:
    """Serve all requests of a part, and return what became of them, queue by queue.

    A service's batch may begin when it is full, or when its oldest request has waited `max_delay`. What remains after
    drops begins at once.

    Args:
        queues: the services in the plan's order.
        order: `fifo` or `edf`.
        drop: the rule for drops.
    """
    has_drops = drop.rule != "none"
    if order == "fifo" and not has_drops and all(each.batch == 1 and each.max_delay == 0 for each in queues):
        return _one_by_one(queues)
    records = [Record(queue) for queue in queues]
    heads, numbers = [0] * len(queues), range(len(queues))
    ready = [queue.ready(0) for queue in queues]
    margins = [queue.objective if order == "edf" else 0.0 for queue in queues]
    now = -math.inf
    while (first := min(ready)) != math.inf:
        now, chosen, earliest = max(now, first), -1, math.inf
        for number in numbers:
            if ready[number] <= now:
                key = queues[number].arrivals[heads[number]] + margins[number]
                if chosen < 0 or key < earliest:
                    chosen, earliest = number, key
        queue, record, head = queues[chosen], records[chosen], heads[chosen]
        if has_drops:
            kept = queue.drop(head, bisect_right(queue.arrivals, now, head), now, drop)
            record.drop(head, kept)
            head = kept
        arrived = bisect_right(queue.arrivals, now, head, min(head + queue.batch, len(queue.arrivals)))
        if size := arrived - head:
            record.begin(now, size)
            now += queue.times[size]
            record.end(now)
        heads[chosen] = arrived
        ready[chosen] = queue.ready(arrived)
    return [record.served() for record in records]


def _one_by_one(queues: Sequence[Queue]) -> list[Served]:
    """Serve the requests in the order of their arrival, each alone. Plans of fleets simulate millions of them."""
    counts = [len(each.arrivals) for each in queues]
    arrivals = np.concatenate([np.asarray(each.arrivals, dtype=float) for each in queues])
    times = np.repeat([float(each.times[1]) for each in queues], counts)
    order = np.argsort(arrivals, kind="stable")
    begun, now = [], -math.inf
    for arrival, time in zip(arrivals[order].tolist(), times[order].tolist(), strict=True):
        if arrival > now:
            now = arrival
        begun.append(now)
        now += time
    starts = np.empty(len(order))
    starts[order] = begun
    parts = (np.split(each, np.cumsum(counts)[:-1]) for each in (starts, starts + times, times))
    return [Served(begins, ends, np.ones(len(begins), np.int64), float(mine.sum()))
            for begins, ends, mine in zip(*parts, strict=True)]  # fmt: skip
