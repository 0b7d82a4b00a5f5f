"""Objects that wait to be looked at: each once, however often it is named, and by one worker at a time."""

import asyncio
import heapq
import itertools
from collections.abc import Iterable
from typing import Generic, TypeVar

K = TypeVar("K")

_FIRST_DELAY, _LONGEST_DELAY = 0.2, 60.0


class WorkQueue(Generic[K]):
    """The queue of a level-triggered controller.

    Of two times for the same object the earlier counts. An object that is named while a worker has it comes again
    after that.
    """

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._taken: set[K] = set()
        self._failures: dict[K, int] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """Return how many objects wait, or are in a worker's hands."""
        return len(self._due.keys() | self._taken)

    def add(self, keys: Iterable[K], delay: float = 0) -> None:
        """Have objects looked at, `delay` seconds from now at the latest."""
        at = asyncio.get_running_loop().time() + delay
        for key in keys:
            if at < self._due.get(key, float("inf")):
                self._due[key] = at
                heapq.heappush(self._heap, (at, next(self._order), key))
        self._wake.set()

    async def take(self) -> K:
        """Return the next object; it is the caller's until `done` or `failed`."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            parked = []
            found: K | None = None
            while self._heap and self._heap[0][0] <= now and found is None:
                at, order, key = heapq.heappop(self._heap)
                if self._due.get(key) != at:
                    continue  # named again for an earlier time, and taken then
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
        """Give an object back; its failures are forgotten."""
        self._taken.discard(key)
        self._failures.pop(key, None)

    def failed(self, key: K) -> float:
        """Give an object back to be looked at again; return when: each time in a row twice as late, up to a minute."""
        self._taken.discard(key)
        count = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(_FIRST_DELAY * float(2 ** min(count - 1, 16)), _LONGEST_DELAY)
        self.add([key], delay)
        return delay
