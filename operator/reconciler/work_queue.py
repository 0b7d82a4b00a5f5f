"""A work queue: holds each object once, however often it is added, and gives it to one worker at a time.

Groups of objects take turns: however many objects of one group are due, another group waits for one of them.
"""

import asyncio
import contextlib
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K")

_FIRST_DELAY, _LONGEST_DELAY = 0.2, 60.0
_AT_ONCE = 1_000
""" How many objects become ready in one step, which must be short. """


class WorkQueue(Generic[K]):
    """The queue of a level-triggered controller.

    If an object is added twice, the earlier time counts. An object that is added while a worker has it is returned
    again after the worker is done.

    Args:
        group: the group of an object.
    """

    def __init__(self, group: Callable[[K], Hashable] = lambda _: None) -> None:
        self._group = group
        self._due: dict[K, tuple[float, int]] = {}
        """ When each waiting object is due, whether its time has come or not, and the number of its entry. """
        self._heap: list[tuple[float, int, K]] = []
        """ The objects whose time has not come, and outdated entries. Two entries may have the same time. """
        self._ready: dict[Hashable, deque[K]] = {}
        """ The objects whose time has come, by group; the group whose turn is next comes first. """
        self._again: set[K] = set()
        """ Objects whose time has come while a worker has them. """
        self._order = itertools.count()
        self._taken: set[K] = set()
        self._failures: dict[K, int] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        """ The callers of `take`, longest wait first. """
        self._timer: asyncio.TimerHandle | None = None
        """ Makes the first object of the heap ready. """

    def __len__(self) -> int:
        """Return the number of objects that wait or that a worker has."""
        return len(self._due.keys() | self._taken)

    def add(self, keys: Iterable[K], delay: float = 0) -> None:
        """Queue objects; each is due in `delay` seconds, or earlier if it was added with an earlier time."""
        at = asyncio.get_running_loop().time() + delay
        for key in keys:
            if key not in self._due or at < self._due[key][0]:
                self._due[key] = at, next(self._order)
                heapq.heappush(self._heap, (*self._due[key], key))
        self._arm()

    async def take(self) -> K:
        """Return the next due object. No other caller gets it until `done` or `failed` is called for it."""
        while not self._ready:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            try:
                await waiting
            except asyncio.CancelledError:
                self._wake()  # another caller, in case this one was woken
                raise
            finally:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(waiting)
        key = self._next()
        self._wake()
        return key

    def _wake(self) -> None:
        """Wake one caller if an object is ready. It wakes the next one."""
        while self._ready and self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return

    def _arm(self) -> None:
        """Set the timer for the first object of the heap."""
        if self._timer is not None and (not self._heap or self._heap[0][0] < self._timer.when()):
            self._timer.cancel()
            self._timer = None
        if self._timer is None and self._heap:
            self._timer = asyncio.get_running_loop().call_at(self._heap[0][0], self._make_ready)

    def _make_ready(self) -> None:
        self._timer, now = None, asyncio.get_running_loop().time()
        for _ in range(_AT_ONCE):
            if not self._heap or self._heap[0][0] > now:
                break
            at, number, key = heapq.heappop(self._heap)
            if self._due.get(key) != (at, number):
                continue  # outdated entry: the object was added again with an earlier time
            if key in self._taken:
                self._again.add(key)
            else:
                self._append(key)
        self._arm()
        self._wake()

    def _append(self, key: K) -> None:
        self._ready.setdefault(self._group(key), deque()).append(key)

    def _next(self) -> K:
        group = next(iter(self._ready))
        waiting = self._ready.pop(group)
        key = waiting.popleft()
        if waiting:
            self._ready[group] = waiting
        del self._due[key]
        self._taken.add(key)
        return key

    def done(self, key: K) -> None:
        """Give an object back, and reset its count of failures."""
        self._failures.pop(key, None)
        self._give_back(key)

    def _give_back(self, key: K) -> None:
        self._taken.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._append(key)
            self._wake()

    def failed(self, key: K) -> float:
        """Queue an object again; return the delay in seconds. It doubles after each further failure, up to 60 s."""
        self._give_back(key)
        count = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(_FIRST_DELAY * float(2 ** min(count - 1, 16)), _LONGEST_DELAY)
        self.add([key], delay)
        return delay
