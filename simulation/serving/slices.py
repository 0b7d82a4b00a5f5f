"""One part on which each service has its own process, and the GPU alternates between the processes that have work.

This is what a GPU does today to two processes without a scheduler. Kernels of one process run for a slice of about
2 ms, then kernels of the next process. So each service forms and begins its batches without a look at the other
services. Batches that run at the same time take turns in slices, in the order in which they began. A batch that begins
within a slice waits until the slice ends, at most 2 ms. A batch that ends leaves the rest of its slice to the next one.
The change between processes takes no time unless the scenario says how long it takes; on an H200 the slice is 2.11 ms
and the change 0.14 ms (docs/results/services-on-h200.md). The GPU changes when a process runs that did not run last.

Refused: equal sharing without slices, because a batch that is shorter than a slice would end too late.
"""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from .batches import NONE, Drop, Queue, Record, Served

SLICE_NS = 2e6
CHANGE_NS = 0.0


class _Processes:
    """The services' processes; each forms its own batches."""

    def __init__(self, queues: Sequence[Queue], drop: Drop) -> None:
        self.queues, self.drop = queues, drop
        self.records = [Record(queue) for queue in queues]
        self.heads = [0] * len(queues)
        self.next = [queue.ready(0) for queue in queues]
        """ When the next batch begins; infinity while a batch is running and when no request is left. """

    def begin(self, now: float) -> list[tuple[int, float]]:
        """Begin all batches that may begin; return the processes and how long each batch needs the GPU."""
        begun = []
        for number, queue in enumerate(self.queues):
            while self.next[number] <= now:
                head = self.heads[number]
                arrived = bisect_right(queue.arrivals, now, head)
                kept = queue.drop(head, arrived, now, self.drop)
                self.records[number].drop(head, kept)
                size = min(arrived - kept, queue.batch)
                self.heads[number] = kept + size
                if size:
                    self.records[number].begin(now, size)
                    self.next[number] = math.inf
                    begun.append((number, queue.times[size]))
                else:
                    self.next[number] = queue.ready(kept)
        return begun

    def end(self, number: int, now: float) -> None:
        """End a process's batch."""
        self.records[number].end(now)
        self.next[number] = max(now, self.queues[number].ready(self.heads[number]))


def serve(
    queues: Sequence[Queue], drop: Drop = NONE, slice_ns: float = SLICE_NS, change_ns: float = CHANGE_NS
) -> list[Served]:
    """Serve all requests of a part, and return what became of them, queue by queue.

    Args:
        queues: the services in the plan's order.
        drop: the rule for drops.
        slice_ns: how long one process has the GPU while another one waits.
        change_ns: for how long no process has the GPU when it goes from one process to another one.
    """
    processes = _Processes(queues, drop)
    ring: deque[tuple[int, float]] = deque()  # processes with a running batch, and what is left of it
    now, slice_start, owner = 0.0, 0.0, -1
    while True:
        joins = min(processes.next)
        if not ring:
            if joins == math.inf:
                return [record.served() for record in processes.records]
            now = slice_start = max(now, joins)
            ring.extend(processes.begin(now))
            continue
        number, left = ring[0]
        if number != owner:
            slice_start = now + change_ns if owner >= 0 else now
            owner = number
        runs_from = max(now, slice_start)
        slice_end = slice_start + slice_ns if len(ring) > 1 else math.inf
        event = min(runs_from + left, slice_end, joins)
        if runs_from + left <= event:
            now = slice_start = runs_from + left
            ring.popleft()
            processes.end(number, now)
        else:
            ring[0] = number, left - max(0.0, event - runs_from)
            now = event
            if event == slice_end:
                ring.rotate(-1)
                slice_start = now
        if min(processes.next) <= now:
            if len(ring) == 1 and now > slice_start:  # alone until now: its slices followed each other without a gap
                slice_start = now - math.fmod(now - slice_start, slice_ns)
            ring.extend(processes.begin(now))
