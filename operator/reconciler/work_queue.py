"""A work queue: holds each object once, however often it is added, and gives it to one worker at a time."""

import asyncio
import heapq
import itertools
from collections.abc import Iterable
from typing import Generic, TypeVar

K = TypeVar("K")

_FIRST_DELAY, _LONGEST_DELAY = 0.2, 60.0


class WorkQueue(Generic[K]):
    """The queue of a level-triggered controller.

    If an object is added twice, the earlier time counts. An object that is added while a worker has it is returned
    again after the worker is done.
    """

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._taken: set[K] = set()
        self._failures: dict[K, int] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of objects that wait or that a worker has."""
        return len(self._due.keys() | self._taken)

    def add(self, keys: Iterable[K], delay: float = 0) -> None:
        """Queue objects; each is due in `delay` seconds, or earlier if it was added with an earlier time."""
        at = asyncio.get_running_loop().time() + delay
        for key in keys:
            if at < self._due.get(key, float("inf")):
                self._due[key] = at
                heapq.heappush(self._heap, (at, next(self._order), key))
        self._wake.set()

    async def take(self) -> K:
        """Return the next due object. No other caller gets it until `done` or `failed` is called for it."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            parked = []
            found: K | None = None
            while self._heap and self._heap[0][0] <= now and found is None:
                at, order, key = heapq.heappop(self._heap)
                if self._due.get(key) != at:
                    continue  # outdated entry: the object was added again with an earlier time
                if key in self._taken:
                    parked.append((at + 0.01, order, key))
                    self._due[key] = at + 0.01
                    continue
                found = key
            for entry in parked:
                heapq.heappush(self._heap, entry)
            if found is not None:
                del self._due[found]
                self._taken.add(found)
                return found
            self._wake.clear()
            wait = self._heap[0][0] - now if self._heap else None
            try:
                await asyncio.wait_for(self._wake.wait(), wait)
            except TimeoutError:
                continue

    def done(self, key: K) -> None:
        """Give an object back, and reset its count of failures."""
        self._taken.discard(key)
        self._failures.pop(key, None)

    def failed(self, key: K) -> float:
        """Queue an object again; return the delay in seconds. It doubles after each further failure, up to 60 s."""
        self._taken.discard(key)
        count = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(_FIRST_DELAY * float(2 ** min(count - 1, 16)), _LONGEST_DELAY)
        self.add([key], delay)
        return delay
