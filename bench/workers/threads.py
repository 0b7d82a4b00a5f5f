"""Runs several workloads in one process, each in a thread of its own.

A worker uses this module if it starts as

    python -m orion.bench.workers.worker --threads CLIENTS [MORE]

CLIENTS is a JSON list of {"role": "hp" | "be", "kind": ..., "options": {...}}. MORE is {"scheduler": {...}} with
settings of `orion.inprocess.Scheduler` (policy, max_slowdown); each thread is then a client of the scheduler.
{"scheduler": null} runs each thread on a plain stream of its own, without Orion.

Commands and replies are those of `commands`, with one more field "client": the client's index in CLIENTS. Each client
also replies when it is ready. Different clients execute their commands at the same time; one client executes its
commands in order. One command is for the scheduler. Neither this command nor its reply has a field "client":

    {"do": "policy", "policy": NAME, "max_slowdown": FACTOR}

The clients are set up one after another. So no other client disturbs the capture of a graph or the timing of a step.
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
"""How long a thread may hold the GIL while another waits; Python's default, 5 ms, is as long as a request."""

Binding = Callable[[], AbstractContextManager[Place]]
"""Binds the calling thread to its client; yields the place in which the workload runs."""


class Scheduler(Protocol):
    """The methods of `orion.inprocess.Scheduler` that this module uses."""

    def client(self, index: int) -> AbstractContextManager[Any]:
        """Bind the calling thread to a client; yields an object whose `stream` is the client's CUstream."""

    def set_policy(self, *, policy: str, max_slowdown: float) -> None:
        """Change the policy for be launches."""


class _Client(threading.Thread):
    """One client: its workload, and its queue of commands."""

    def __init__(self, index: int, spec: dict[str, Any], binding: Binding, replies: Replies) -> None:
        super().__init__(name=f"client {index}", daemon=True)  # daemon: an error in the main thread ends the process
        self._index, self._spec = index, spec
        self._binding, self._replies = binding, replies
        self.commands: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.ready = threading.Event()

    def run(self) -> None:
        """Set up, then execute commands until a None arrives."""
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
    """Set up the clients, then distribute commands to them until standard input ends.

    Args:
        specs: Role, kind and options of each client.
        settings: Settings of the scheduler; None: no scheduler.
        replies: Receives the replies of all clients.

    Raises:
        Invalid: A workload is unknown or has an invalid option; nothing has been set up then.
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
            _dispatch(json.loads(line), clients, scheduler, replies)
        for client in clients:
            client.commands.put(None)
        for client in clients:
            client.join()


def _dispatch(command: dict[str, Any], clients: list[_Client], scheduler: Scheduler | None, replies: Replies) -> None:
    if command["do"] != "policy":
        clients[command["client"]].commands.put(command)
        return
    if scheduler is None:
        raise ValueError("there is no scheduler, so its policy cannot change")
    changes = {name: value for name, value in command.items() if name != "do"}
    scheduler.set_policy(**changes)
    replies.send({"policy": changes})


def _scheduler(roles: list[str], settings: dict[str, Any] | None) -> AbstractContextManager[Scheduler | None]:
    if settings is None:
        return contextlib.nullcontext()
    inprocess = importlib.import_module("orion.inprocess")  # imported late: the module needs the hook
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
