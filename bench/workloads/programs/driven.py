"""Lets `step` advance a loop that a library controls, such as a Trainer's.

The loop runs in a thread of its own, and asks for a batch before each of its steps. `DrivenLoop` holds the thread there
until `step` is called. A library that asks for batches ahead is ahead by the same number of batches all the time, so
each `step` still makes one step.
"""

import threading
from collections.abc import Callable, Iterator

from orion.bench.workload import Place
from orion.errors import Invalid, Unavailable

STEP_SECONDS = 110.0  # a longer step hangs; less than a parent waits for a worker, so the worker reports it


def refuse_threads(place: Place) -> None:
    """Refuse a program as one of several threads of a process.

    Raises:
        Invalid: The process has other clients.
    """
    if place.one_of_several:
        raise Invalid(
            "this program chooses its own streams and threads: run it in a process of its own, not in threads"
        )


class DrivenLoop:
    """A library's loop, which advances when `step` is called."""

    def __init__(self, run: Callable[[Iterator[None]], object]) -> None:
        """Start the loop; it waits for the first `step`.

        Args:
            run: Runs the whole loop; it takes one item from its argument for each step, and the items never end.
        """
        self._run = run
        self._permit, self._asked = threading.Semaphore(0), threading.Semaphore(0)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="driven loop", daemon=True)
        self._thread.start()
        self._wait()

    def step(self) -> None:
        """Let the loop take one item, and wait until it asks for the next.

        Raises:
            Unavailable: The loop ended, failed, or does not ask in time.
        """
        self._permit.release()
        self._wait()

    def _wait(self) -> None:
        asked = self._asked.acquire(timeout=STEP_SECONDS)
        if self._failure is not None:
            raise Unavailable(f"the loop failed: {self._failure}") from self._failure
        if not asked:
            raise Unavailable(f"the loop made no step in {STEP_SECONDS:.0f} s")

    def _work(self) -> None:
        try:
            self._run(self._items())
            raise RuntimeError("it ended, although its data has no end")
        except BaseException as error:
            self._failure = error
            self._asked.release()

    def _items(self) -> Iterator[None]:
        while True:
            self._asked.release()
            self._permit.acquire()
            yield None
