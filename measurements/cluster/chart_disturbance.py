"""What pods that compute, and people who make pods, notice while Orion is replaced under them: watched from outside.

Two threads look ten times a second, for as long as the context lasts:

* at the agent's record. Each watched process has a seat (GPU, slot, place, generation). Who was unmanaged for a moment
  has joined again, which gives another generation: so whoever has its seat at the end as in the beginning, and never
  another one in between, was managed all the time. Between two agents the seats stand in the pages, and a new agent
  knows them from the state of the one before until their processes have said that they are there;
* at admission: a pod is made as a trial (dry run), which asks the webhook. Each refusal is kept, in its own words.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple

LOOKS_PER_SECOND = 10


class Seat(NamedTuple):
    """Where a process has joined."""

    gpu: str
    slot: str
    place: int
    generation: int


Seats = Mapping[int, Seat]
""" By the node's process ids. """


@dataclass
class Disturbance:
    """What was seen.

    Args:
        looks: how often it was looked at the agent.
        unanswered: at how many of them no agent answered.
        away_seconds: the longest time between two answers.
        returning_seconds: the longest time for which an agent answered, and did not show a process yet.
        changed: a sentence for each look at which a process had another seat than at first.
        trials: how many pods were made as a trial.
        refusals: the API server's words where one was refused.
    """

    looks: int = 0
    unanswered: int = 0
    away_seconds: float = 0.0
    returning_seconds: float = 0.0
    changed: list[str] = field(default_factory=list)
    trials: int = 0
    refusals: list[str] = field(default_factory=list)


class Watch:
    """Watches while its context lasts; `seen` is complete after it.

    Args:
        seats: asks the agent where every process has joined.
        trial: makes a pod as a trial.
        of: the processes that are watched.

    Both raise `away` where nobody answers (seats), or `refused` (trial).
    """

    def __init__(
        self,
        seats: Callable[[], Seats],
        trial: Callable[[], object],
        of: Seats,
        away: type[Exception],
        refused: type[Exception],
    ) -> None:
        self._seats, self._trial, self._of, self._away, self._refused = seats, trial, dict(of), away, refused
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._again, args=(each,)) for each in (self._look, self._try)]
        self._fault: BaseException | None = None
        self.seen = Disturbance()
        self._answered_at = time.monotonic()
        self._shown_at = dict.fromkeys(of, self._answered_at)
        self._agent_since, self._agent_gone = self._answered_at, False

    def __enter__(self) -> "Watch":
        self._answered_at = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, what: BaseException | None, where: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if self._fault and what is None:
            raise self._fault

    def _again(self, action: Callable[[], None]) -> None:
        try:
            while not self._ended.wait(1 / LOOKS_PER_SECOND):
                action()
        except BaseException as fault:  # reaches whoever leaves the context
            self._fault = fault

    def _look(self) -> None:
        self.seen.looks += 1
        found: Seats | None = None
        with contextlib.suppress(self._away):
            found = self._seats()
        now = time.monotonic()
        if found is None:
            self.seen.unanswered += 1
            self._agent_gone = True
            return
        if self._agent_gone:
            self._agent_gone, self._agent_since = False, now
        self.seen.away_seconds = max(self.seen.away_seconds, now - self._answered_at)
        for process, seat in self._of.items():
            if process in found:
                self._shown_at[process] = now
                self.seen.changed += [f"{process} was at {seat}, and is at {found[process]}"] * (found[process] != seat)
            else:
                absent = now - max(self._shown_at[process], self._agent_since)
                self.seen.returning_seconds = max(self.seen.returning_seconds, absent)
        self._answered_at = now

    def _try(self) -> None:
        self.seen.trials += 1
        try:
            self._trial()
        except self._refused as refusal:
            self.seen.refusals.append(str(refusal))
