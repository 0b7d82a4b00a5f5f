"""Records how an upgrade of Orion affects running pods, and users who create pods.

While the context lasts, two threads check ten times a second:

* the agent's clients. Each watched process has a record (GPU, slot, slot index, generation). A process that was
  unmanaged for a moment joins again with another generation. So a process with the same record in every check was
  managed all the time. While no agent runs, the records stay in the pages. A new agent takes them from the
  state of the earlier agent until the processes have connected to the new agent;
* admission: a dry run creates a pod, which calls the webhook. Each rejection is recorded with its text.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple

LOOKS_PER_SECOND = 10


class Client(NamedTuple):
    """The slot that a process has joined."""

    gpu: str
    slot: str
    client_index: int
    generation: int


Clients = Mapping[int, Client]
""" By process ID on the node. """


@dataclass
class Disturbance:
    """What the two threads of `Watch` found.

    Args:
        looks: number of checks of the agent.
        unanswered: number of checks that no agent answered.
        away_seconds: the longest time between two answers.
        returning_seconds: the longest time in which an agent answered but did not show a process yet.
        changed: a sentence for each check at which a process had another record than at the start.
        trials: number of pods created as dry runs.
        refusals: the API server's text for each rejected pod.
    """

    looks: int = 0
    unanswered: int = 0
    away_seconds: float = 0.0
    returning_seconds: float = 0.0
    changed: list[str] = field(default_factory=list)
    trials: int = 0
    refusals: list[str] = field(default_factory=list)


class Watch:
    """Watches the agent and admission while its context lasts; `seen` is complete after that.

    Args:
        clients: returns the agent's clients.
        trial: creates a pod as a dry run.
        of: the processes to watch, with their first records.

    `clients` raises `away` if no agent answers. `trial` raises `refused` if the API server rejects the pod.
    """

    def __init__(
        self,
        clients: Callable[[], Clients],
        trial: Callable[[], object],
        of: Clients,
        away: type[Exception],
        refused: type[Exception],
    ) -> None:
        self._clients, self._trial, self._of, self._away, self._refused = clients, trial, dict(of), away, refused
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
        except BaseException as fault:  # __exit__ raises it again
            self._fault = fault

    def _look(self) -> None:
        self.seen.looks += 1
        found: Clients | None = None
        with contextlib.suppress(self._away):
            found = self._clients()
        now = time.monotonic()
        if found is None:
            self.seen.unanswered += 1
            self._agent_gone = True
            return
        if self._agent_gone:
            self._agent_gone, self._agent_since = False, now
        self.seen.away_seconds = max(self.seen.away_seconds, now - self._answered_at)
        for process, client in self._of.items():
            if process in found:
                self._shown_at[process] = now
                self.seen.changed += [f"{process} had {client}, and has {found[process]}"] * (found[process] != client)
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
