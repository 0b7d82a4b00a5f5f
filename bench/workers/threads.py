"""Several workloads in one process, a thread each: `python -m orion.bench.workers.worker --threads CLIENTS [MORE]`.

CLIENTS is a JSON list of {"role": "hp" | "be", "kind": ..., "options": {...}}. MORE is {"scheduler": {...}}: the
settings of `orion.inprocess.Scheduler` (policy, max_slowdown), under which each thread is then a client; {"scheduler":
null} runs the threads on plain streams of their own, without Orion.

Commands are those of `commands` with "client": the index in CLIENTS, and so are replies, that each client is ready
among them. Commands of different clients overlap in time, those of one client follow each other. One is for the
scheduler, and its reply has no client:

    {"do": "policy", "policy": NAME, "max_slowdown": FACTOR}

Set-ups follow each other: a graph is captured and a step is timed while no other client does anything.
"""

import contextlib
import importlib
import json
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from orion.bench.workers import commands
from orion.bench.workers.process import Replies, end_with, stop_collecting
from orion.bench.workload import Place
from orion.bench.workloads import check, make

SWITCH_SECONDS = 50e-6
"""How long a thread may keep Python's lock from another; its default of 5 ms would be most of a request."""

Binding = Callable[[], AbstractContextManager[Place]]
"""Binds the calling thread to its client; the place is where its workload then works."""


class Scheduler(Protocol):
    """What is used of `orion.inprocess.Scheduler`."""

    def client(self, index: int) -> AbstractContextManager[Any]:
        """Bind the calling thread to a client; what it yields has the client's CUstream as `stream`."""

    def set_policy(self, *, policy: str, max_slowdown: float) -> None:
        """Change how be launches are let through."""


class _Client(threading.Thread):
    """One client: its workload, and the commands that wait for it."""

    def __init__(self, index: int, spec: dict[str, Any], binding: Binding, replies: Replies) -> None:
        super().__init__(name=f"client {index}", daemon=True)  # an error elsewhere does not wait for it
        self._index, self._spec = index, spec
        self._binding, self._replies = binding, replies
        self.commands: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.ready = threading.Event()

    def run(self) -> None:
        """Set up, then obey until there is a None."""
        try:
            with self._binding() as place:
                workload = make(self._spec["kind"], self._spec.get("options", {}), place)
                self._reply(commands.about(workload))
                self.ready.set()
                while (command := self.commands.get()) is not None:
                    self._reply(commands.obey(workload, command))
        except BaseException as error:
            end_with(error)

    def _reply(self, reply: dict[str, Any]) -> None:
        self._replies.send({"client": self._index, **reply})


def run(specs: list[dict[str, Any]], settings: dict[str, Any] | None, replies: Replies) -> None:
    """Set the clients up, report, hand commands out until they end.

    Args:
        specs: The clients: role, kind, options.
        settings: Of the scheduler; None: no scheduler.
        replies: Where all of them answer.

    Raises:
        WorkloadError: A workload that cannot be; nothing has been set up then.
    """
    for spec in specs:
        check(spec["kind"], spec.get("options", {}))
    sys.setswitchinterval(SWITCH_SECONDS)
    with _scheduler([spec["role"] for spec in specs], settings) as scheduler:
        clients = [_Client(index, spec, _binding(scheduler, index), replies) for index, spec in enumerate(specs)]
        for client in clients:
            client.start()
            client.ready.wait()
        stop_collecting()
        for line in sys.stdin:
            _hand_out(json.loads(line), clients, scheduler, replies)
        for client in clients:
            client.commands.put(None)
        for client in clients:
            client.join()


def _hand_out(command: dict[str, Any], clients: list[_Client], scheduler: Scheduler | None, replies: Replies) -> None:
    if command["do"] != "policy":
        clients[command["client"]].commands.put(command)
        return
    if scheduler is None:
        raise ValueError("there is no scheduler whose policy could change")
    changes = {name: value for name, value in command.items() if name != "do"}
    scheduler.set_policy(**changes)
    replies.send({"policy": changes})


def _scheduler(roles: list[str], settings: dict[str, Any] | None) -> AbstractContextManager[Scheduler | None]:
    if settings is None:
        return contextlib.nullcontext()
    inprocess = importlib.import_module("orion.inprocess")  # needs the hook to be preloaded; plain threads do not
    scheduler: AbstractContextManager[Scheduler] = inprocess.Scheduler(clients=roles, **settings)
    return scheduler


def _binding(scheduler: Scheduler | None, index: int) -> Binding:
    @contextlib.contextmanager
    def bind() -> Any:
        if scheduler is None:
            yield Place(one_of_several=True)
            return
        with scheduler.client(index) as client:
            yield Place(one_of_several=True, stream=lambda: int(client.stream))

    return bind
