"""The server's rule: one batch at a time; which service's batch begins, and when.

A service's batch may begin when it is full, or when its oldest request has waited `max_delay`. Among those that may,
`edf` takes the earliest deadline of an oldest request; ties go by the order of the queues. A batch is not interrupted.
The rule has no clock of its own: the worker gives it the machine's, and tests give it one that they advance.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

SPIN_SECONDS = 0.0005  # before an instant, a process spins instead of sleeping, because a sleep ends 0.05 ms late


@dataclass
class Queue:
    """The requests of one service. Times are seconds from the run's begin."""

    service: str
    batch: int
    max_delay: float
    objective: float
    arrivals: Sequence[float]
    head: int = 0
    """The number of requests that have been served."""

    def ready_at(self) -> float:
        """Return when the next batch may begin; infinity if no request is left."""
        if self.head == len(self.arrivals):
            return float("inf")
        full = self.head + self.batch - 1
        delayed = self.arrivals[self.head] + self.max_delay
        return min(delayed, self.arrivals[full]) if full < len(self.arrivals) else delayed

    def waiting(self, now: float) -> int:
        """Return how many requests the next batch would hold, at most `batch`."""
        count = 0
        while count < self.batch and self.head + count < len(self.arrivals):
            if self.arrivals[self.head + count] > now:
                break
            count += 1
        return count


@dataclass
class Batches:
    """The batches of a run, in the order in which they began: parallel lists, times in seconds from the begin."""

    queue: list[int] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    size: list[int] = field(default_factory=list)


def serve(
    queues: Sequence[Queue],
    execute: Callable[[str, int], None],
    clock: Callable[[], float],
    wait_until: Callable[[float], None],
    until: float,
) -> Batches:
    """Serve all requests, or those whose batch begins before `until`.

    Args:
        queues: The services of this process.
        execute: Executes one batch: service, number of requests.
        clock: Returns seconds since the run's begin.
        wait_until: Waits until the clock shows an instant.
        until: No batch begins later.
    """
    log = Batches()
    while True:
        now = clock()
        ready = [queue.ready_at() for queue in queues]
        soonest = min(ready)
        if soonest == float("inf") or max(now, soonest) >= until:
            return log
        if soonest > now:
            wait_until(soonest)
            continue
        chosen = min(
            (queue.arrivals[queue.head] + queue.objective, number)
            for number, queue in enumerate(queues)
            if ready[number] <= now
        )[1]
        queue = queues[chosen]
        size = queue.waiting(now)
        execute(queue.service, size)
        log.queue.append(chosen)
        log.start.append(now)
        log.end.append(clock())
        log.size.append(size)
        queue.head += size


def wait_until(instant: float) -> None:
    """Wait until CLOCK_MONOTONIC shows `instant`, precisely: sleep first, then spin."""
    while True:
        left = instant - time.monotonic()
        if left <= 0:
            return
        if left > 2 * SPIN_SECONDS:
            time.sleep(left - SPIN_SECONDS)
