"""Processes that tests command line by line: worker.py and checkpoint_worker.py, each on a simulated machine."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

StartWorker = Callable[..., "Worker"]


class Worker:
    """A process of a worker's file. It reads one command per line and answers each with one line."""

    def __init__(self, file: str, environment: dict[str, str]) -> None:
        command = [sys.executable, str(Path(__file__).parent / file)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe)
        self.pid = int(self.answer())

    def begin(self, command: str) -> None:
        """Send a command, and do not wait for its answer."""
        assert self.process.stdin
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """Wait for the next answer; empty: the process has ended."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def do(self, command: str) -> str:
        self.begin(command)
        answer = self.answer()
        assert answer
        return answer

    def codes(self, *commands: str) -> list[int]:
        """Send commands one after another, and return their answers, which are numbers."""
        return [int(self.do(command)) for command in commands]

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def workers(file: str, environment: dict[str, str]) -> Iterator[StartWorker]:
    """Yield a function that starts a worker with further settings of its machine; end the workers afterwards."""
    started: list[Worker] = []

    def start(**settings: str) -> Worker:
        started.append(Worker(file, {**environment, **settings}))
        return started[-1]

    yield start
    for worker in started:
        worker.end()
