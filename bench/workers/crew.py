"""The parent's side of the workers: start them, command them, hear them, end them; each wait has a deadline.

Nothing here outlives its `with` block: leaving it, by an error or Ctrl-C too, ends every worker that was started.
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
from types import TracebackType
from typing import IO, Any, Self

Tick = Callable[[], None]
TICK_SECONDS = 0.1
END_SECONDS = 0.5  # that a worker whose commands have ended gets to end
START_SECONDS = 120.0  # torch's import and a model's warm-up on a slow disk
COMMAND_SECONDS = 10.0  # that a worker gets to read a command: it waits for it


class WorkerError(RuntimeError):
    """A worker ended or missed a deadline; the text holds the end of what it wrote to standard error."""


class _Process:
    """One process of the module `worker`, its replies sorted by client."""

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

    def tell(self, line: bytes) -> None:
        """Hand a command over; an OSError if the process has ended, or does not read it in time."""
        deadline, left = time.monotonic() + COMMAND_SECONDS, memoryview(line)
        while left:
            if not select.select([], [self.commands], [], max(0.0, deadline - time.monotonic()))[1]:
                raise TimeoutError("it reads none")
            left = left[os.write(self.commands.fileno(), left) :]

    def hear(self) -> bool:
        """Take in what has come; False if the process has closed its side."""
        try:
            piece = os.read(self.out.fileno(), 1 << 20)
        except BlockingIOError:
            return True
        *lines, self._unread = (self._unread + piece).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):  # what a prefix or preload of somebody else prints there is no reply
                reply = json.loads(line)
                if isinstance(reply, dict):
                    self._replies.setdefault(reply.get("client"), deque()).append(reply)
        return bool(piece)

    def reply(self, client: int | None) -> dict[str, Any] | None:
        """Return a client's next reply; None asks for those of the process itself."""
        waiting = self._replies.get(client)
        return waiting.popleft() if waiting else None

    def close_commands(self) -> None:
        """Let the process end by itself."""
        with contextlib.suppress(OSError):
            self.commands.close()

    def end(self, deadline: float) -> None:
        """End the process: by closing its commands, else at a time of CLOCK_MONOTONIC by SIGKILL."""
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
    """One worker: a process, or one of the threads of a process that has several."""

    def __init__(self, name: str, process: _Process, client: int | None = None) -> None:
        """Args: name is what messages call it; client is its number in a process with threads."""
        self.name = name
        self.about: dict[str, Any] = {}
        self.process = process
        self.process_id = process.running.pid
        self.replies = process.out
        self._client = client

    def whole_process(self) -> "Worker":
        """Return who is told what is for all clients of the process together."""
        return Worker(self.name, self.process)

    def command(self, **command: Any) -> None:
        """Send one command; its reply is read by `gather`."""
        if self._client is not None:
            command["client"] = self._client
        try:
            self.process.tell(json.dumps(command).encode() + b"\n")
        except OSError as error:
            raise self.failure(f"cannot be commanded: {error}") from error

    def read(self) -> dict[str, Any] | None:
        """Return the next reply if it is complete, without waiting."""
        heard = self.process.hear()
        reply = self.process.reply(self._client)
        if reply is None and not heard:
            raise self.failure("ended")
        return reply

    def failure(self, what: str) -> WorkerError:
        """Make the error that tells what happened, with the worker's own last words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.running.wait(0.2)
        said = self.said().strip()[-2000:]
        status = self.process.running.poll()
        return WorkerError(f"worker {self.name} {what} (exit status {status}); it said:\n{said or '(nothing)'}")

    def said(self) -> str:
        """Return what the worker has written to standard error so far."""
        self.process.errors.seek(0)
        return self.process.errors.read().decode(errors="replace")

    def alive(self) -> bool:
        """Say whether its process has not ended."""
        return self.process.running.poll() is None


@contextlib.contextmanager
def _interrupted_after() -> Iterator[None]:
    """Put Ctrl-C and the like off to the end: in the middle of a start they would leave a process that nobody knows."""
    if threading.current_thread() is not threading.main_thread():  # handlers run in the main one only
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
        """Args: tick is called ten times a second while waiting (progress bars)."""
        self._tick = tick
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.dismiss(list(self._workers))

    def hire(
        self,
        name: str,
        kind: str,
        options: Mapping[str, Any],
        environment: Mapping[str, str],
        prefix: Sequence[str] = (),
    ) -> Worker:
        """Start a worker process; `ready` waits for it.

        Args:
            name: What messages call it.
            kind: A workload of `orion.bench.workers.worker`.
            options: Of that workload.
            environment: The whole environment, hook and all.
            prefix: Words before the command.
        """
        words = [*prefix, sys.executable, "-m", "orion.bench.workers.worker", kind, json.dumps(dict(options))]
        with _interrupted_after():
            self._workers.append(Worker(name, _Process(words, environment)))
        return self._workers[-1]

    def hire_threads(
        self,
        name: str,
        clients: Sequence[Mapping[str, Any]],
        environment: Mapping[str, str],
        prefix: Sequence[str] = (),
        scheduled: bool = True,
    ) -> list[Worker]:
        """Start one process whose threads are the clients; they live and end together.

        Args:
            name: What messages call the process.
            clients: Of each its role, kind and options.
            environment: The whole environment.
            prefix: Words before the command.
            scheduled: By Orion; else each thread has a plain stream of its own.
        """
        more = json.dumps({} if scheduled else {"scheduler": None})
        reported = json.dumps([dict(client) for client in clients])
        words = [*prefix, sys.executable, "-m", "orion.bench.workers.worker", "--threads", reported, more]
        with _interrupted_after():
            process = _Process(words, environment)
            workers = [Worker(f"{name} ({client['role']})", process, number) for number, client in enumerate(clients)]
            self._workers += workers
        return workers

    def dismiss(self, workers: Iterable[Worker]) -> None:
        """End some workers now, all at once."""
        ending = list(workers)
        for worker in ending:
            worker.process.close_commands()
        deadline = time.monotonic() + END_SECONDS
        for worker in ending:
            self._workers.remove(worker)
            worker.process.end(deadline)

    def ready(self, *workers: Worker, seconds: float = START_SECONDS) -> None:
        """Wait until workers have set up; fills their `about`."""
        for worker, about in zip(workers, self.gather(*workers, seconds=seconds), strict=True):
            worker.about = about

    def gather(self, *workers: Worker, seconds: float) -> list[dict[str, Any]]:
        """Wait for one reply of each worker.

        Args:
            workers: Who was commanded.
            seconds: Deadline from now.

        Returns:
            The replies in the order of `workers`.

        Raises:
            WorkerError: One ended or was late.
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
