"""The parent's side of the workers: start them, command them, hear them, end them; each wait has a deadline.

Nothing here outlives its `with` block: leaving it, by an error or Ctrl-C too, ends every worker that was started.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import IO, Any, Self

Tick = Callable[[], None]
TICK_SECONDS = 0.1
START_SECONDS = 120.0  # torch's import and a model's warm-up on a slow disk


class WorkerError(RuntimeError):
    """A worker ended or missed a deadline; the text holds the end of what it wrote to standard error."""


class Worker:
    """One worker process."""

    def __init__(self, name: str, kind: str, options: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        """Start the process; `crew.ready` waits for it.

        Args:
            name: What messages call it.
            kind: A workload of `orion.bench.worker`.
            options: Of that workload.
            environment: The whole environment, hook and all.
        """
        self.name = name
        self.about: dict[str, Any] = {}
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `end`)
        self._unread = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "orion.bench.worker", kind, json.dumps(dict(options))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=dict(environment),
        )
        self.process_id = self._process.pid
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands, self.replies = self._process.stdin, self._process.stdout
        os.set_blocking(self.replies.fileno(), False)

    def command(self, **command: Any) -> None:
        """Send one command; its reply is read by `gather`."""
        try:
            self._commands.write(json.dumps(command).encode() + b"\n")
            self._commands.flush()
        except OSError as error:
            raise self.failure(f"cannot be commanded: {error}") from error

    def read(self) -> dict[str, Any] | None:
        """Return the next reply if it is complete, without waiting."""
        while b"\n" not in self._unread:
            try:
                piece = os.read(self.replies.fileno(), 1 << 20)
            except BlockingIOError:
                return None
            if not piece:
                raise self.failure("ended")
            self._unread += piece
        line, self._unread = self._unread.split(b"\n", 1)
        reply: dict[str, Any] = json.loads(line)
        return reply

    def failure(self, what: str) -> WorkerError:
        """Make the error that tells what happened, with the worker's own last words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2)
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()[-2000:]
        status = self._process.poll()
        return WorkerError(f"worker {self.name} {what} (exit status {status}); it said:\n{said or '(nothing)'}")

    def said(self) -> str:
        """Return what the worker has written to standard error so far."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def end(self) -> None:
        """End the process: by closing its commands, else by SIGKILL."""
        with contextlib.suppress(OSError):
            self._commands.close()
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.replies.close()
        self._errors.close()


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

    def hire(self, name: str, kind: str, options: Mapping[str, Any], environment: Mapping[str, str]) -> Worker:
        """Start a worker; see `Worker`."""
        worker = Worker(name, kind, options, environment)
        self._workers.append(worker)
        return worker

    def dismiss(self, workers: Iterable[Worker]) -> None:
        """End some workers now."""
        for worker in workers:
            self._workers.remove(worker)
            worker.end()

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
