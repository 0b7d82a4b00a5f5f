"""Starts, commands and ends worker processes, and reads their replies; each wait has a deadline.

No worker outlives the `with` block of its `Crew`: the end of the block, also by an error or Ctrl-C, ends all workers.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Self

from orion.errors import Unavailable

Tick = Callable[[], None]
TICK_SECONDS = 0.1
END_SECONDS = 0.5  # for a worker to exit after its standard input is closed
START_SECONDS = 120.0  # for torch's import and a model's warm-up, on a slow disk
COMMAND_SECONDS = 10.0  # for a worker to read a command


class _Process:
    """One process of the module `worker`, with its unread replies by client."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `end`)
        self._unread = b""
        self._replies: dict[int | None, deque[dict[str, Any]]] = {}
        self.running = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=dict(environment)
        )
        assert self.running.stdin is not None
        assert self.running.stdout is not None
        self.commands, self.out = self.running.stdin, self.running.stdout
        os.set_blocking(self.out.fileno(), False)
        os.set_blocking(self.commands.fileno(), False)

    def send(self, line: bytes) -> None:
        """Write a command to the process; raises OSError if the process has ended, or does not read it in time."""
        deadline, left = time.monotonic() + COMMAND_SECONDS, memoryview(line)
        while left:
            if not select.select([], [self.commands], [], max(0.0, deadline - time.monotonic()))[1]:
                raise TimeoutError("it does not read its standard input")
            left = left[os.write(self.commands.fileno(), left) :]

    def receive(self) -> bool:
        """Read the replies that have arrived, without waiting; False if the process has closed its output."""
        try:
            piece = os.read(self.out.fileno(), 1 << 20)
        except BlockingIOError:
            return True
        *lines, self._unread = (self._unread + piece).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):  # not a reply: a prefix command or a preloaded library printed it
                reply = json.loads(line)
                if isinstance(reply, dict):
                    self._replies.setdefault(reply.get("client"), deque()).append(reply)
        return bool(piece)

    def reply(self, client: int | None) -> dict[str, Any] | None:
        """Return the client's next reply, or None; client None means the process as a whole."""
        waiting = self._replies.get(client)
        return waiting.popleft() if waiting else None

    def close_commands(self) -> None:
        """Close the process's standard input, which ends the process."""
        with contextlib.suppress(OSError):
            self.commands.close()

    def end(self, deadline: float) -> None:
        """End the process: close its standard input; kill it at `deadline`, in seconds of CLOCK_MONOTONIC."""
        if self.out.closed:
            return
        self.close_commands()
        try:
            self.running.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.running.kill()
            self.running.wait()
        self.out.close()
        self.errors.close()


class Worker:
    """One worker: a process, or one thread of a process with several clients."""

    def __init__(self, name: str, process: _Process, client: int | None = None) -> None:
        """Args: name appears in messages; client is the index of the thread in a process with several clients."""
        self.name = name
        self.about: dict[str, Any] = {}
        self.process = process
        self.process_id = process.running.pid
        self.replies = process.out
        self._client = client

    def whole_process(self) -> "Worker":
        """Return a worker whose commands go to the process as a whole, not to one client."""
        return Worker(self.name, self.process)

    def command(self, **command: Any) -> None:
        """Send one command; `gather` reads its reply."""
        if self._client is not None:
            command["client"] = self._client
        try:
            self.process.send(json.dumps(command).encode() + b"\n")
        except OSError as error:
            raise self.failure(f"cannot be commanded: {error}") from error

    def read(self) -> dict[str, Any] | None:
        """Return the next complete reply, or None, without waiting."""
        open_output = self.process.receive()
        reply = self.process.reply(self._client)
        if reply is None and not open_output:
            raise self.failure("ended")
        return reply

    def failure(self, what: str) -> Unavailable:
        """Return an error that says what happened, with the worker's exit status and the end of its standard error."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.running.wait(0.2)
        said = self.standard_error().strip()[-2000:]
        status = self.process.running.poll()
        return Unavailable(f"worker {self.name} {what} (exit status {status}); its output:\n{said or '(nothing)'}")

    def standard_error(self) -> str:
        """Return what the worker has written to its standard error."""
        self.process.errors.seek(0)
        return self.process.errors.read().decode(errors="replace")

    def alive(self) -> bool:
        """Return whether the worker's process still runs."""
        return self.process.running.poll() is None


@contextlib.contextmanager
def _interrupted_after() -> Iterator[None]:
    """Defer SIGINT, SIGTERM and SIGHUP to the end of the context.

    Otherwise, an interrupt during a start could leave a process that is not yet in the crew's list. Nothing would end
    that process.
    """
    if threading.current_thread() is not threading.main_thread():  # signal handlers run in the main thread only
        yield
        return
    came: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    replaced = {number: each for number, each in handlers.items() if each not in (signal.SIG_IGN, None)}
    for number in replaced:
        signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
        for first in came[:1]:
            signal.raise_signal(first)


class Crew:
    """The workers of one experiment."""

    def __init__(self, tick: Tick = lambda: None) -> None:
        """Args: tick is called ten times a second during waits, for progress bars."""
        self._tick = tick
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(list(self._workers))

    def start(
        self,
        name: str,
        kind: str,
        options: Mapping[str, Any],
        environment: Mapping[str, str],
        prefix: Sequence[str] = (),
        module: str = "orion.bench.workers.worker",
    ) -> Worker:
        """Start a worker process; `ready` waits until it has set up.

        Args:
            name: Name of the worker in messages.
            kind: Kind of workload, from `orion.bench.workloads`.
            options: Options of the workload.
            environment: The complete environment, including the hook's variables.
            prefix: Words before the command, such as `nice -n 10`.
            module: Module of the worker process.
        """
        words = [*prefix, sys.executable, "-Pm", module, kind, json.dumps(dict(options))]
        with _interrupted_after():
            self._workers.append(Worker(name, _Process(words, environment)))
        return self._workers[-1]

    def start_threads(
        self,
        name: str,
        clients: Sequence[Mapping[str, Any]],
        environment: Mapping[str, str],
        prefix: Sequence[str] = (),
        scheduled: bool = True,
    ) -> list[Worker]:
        """Start one process in which each client is a thread; all its clients end together.

        Args:
            name: Name of the process in messages.
            clients: Role, kind and options of each client.
            environment: The complete environment.
            prefix: Words before the command.
            scheduled: Orion schedules the threads; else each thread has a plain stream of its own.
        """
        more = json.dumps({} if scheduled else {"scheduler": None})
        specs = json.dumps([dict(client) for client in clients])
        words = [*prefix, sys.executable, "-Pm", "orion.bench.workers.worker", "--threads", specs, more]
        with _interrupted_after():
            process = _Process(words, environment)
            workers = [Worker(f"{name} ({client['role']})", process, number) for number, client in enumerate(clients)]
            self._workers += workers
        return workers

    def end(self, workers: Iterable[Worker]) -> None:
        """End these workers now, all at the same time."""
        ending = list(workers)
        for worker in ending:
            worker.process.close_commands()
        deadline = time.monotonic() + END_SECONDS
        for worker in ending:
            self._workers.remove(worker)
            worker.process.end(deadline)

    def ready(self, *workers: Worker, seconds: float = START_SECONDS) -> None:
        """Wait until the workers have set up; sets their `about`."""
        for worker, about in zip(workers, self.gather(*workers, seconds=seconds), strict=True):
            worker.about = about

    def gather(self, *workers: Worker, seconds: float) -> list[dict[str, Any]]:
        """Wait for one reply of each worker.

        Args:
            workers: The workers that got a command.
            seconds: The deadline, in seconds from now.

        Returns:
            The replies in the order of `workers`.

        Raises:
            Unavailable: A worker ended, or did not answer in time.
        """
        deadline = time.monotonic() + seconds
        replies: dict[Worker, dict[str, Any]] = {}
        while len(replies) < len(workers):
            self._tick()
            waiting = [worker for worker in workers if worker not in replies]
            select.select([worker.replies for worker in waiting], [], [], TICK_SECONDS)
            for worker in waiting:
                reply = worker.read()
                if reply is not None:
                    replies[worker] = reply
            if time.monotonic() > deadline and len(replies) < len(workers):
                late = next(worker for worker in workers if worker not in replies)
                raise late.failure(f"gave no answer in {seconds:.0f} s")
        return [replies[worker] for worker in workers]
