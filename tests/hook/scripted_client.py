"""A client process that executes a test's commands; hook/test/client_scripted/main.c lists them.

It takes its times from CLOCK_MONOTONIC, which is `time.monotonic_ns` here, so a test can compare times of several
processes.
"""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from testbed.process_costs import cpu_seconds_of
from tests.waiting import eventually

__all__ = [
    "DEADLINE",
    "LONG_ENOUGH_TO_SEE",
    "MILLISECOND",
    "Answer",
    "Client",
    "ClientDied",
    "busy",
    "eventually",
    "warm",
]

MILLISECOND = 1_000_000
DEADLINE = 20.0
""" Seconds after which a missing answer is a failure. No command takes nearly as long, so only a hang reaches this
limit.
"""
LONG_ENOUGH_TO_SEE = 900
""" Milliseconds. A state that a test waits to see lasts so long, so that a slow machine does not miss it. It may not be
a second: the hook gives up an hp whose kernel takes longer.
"""


@dataclass(frozen=True)
class Answer:
    """A client's answer to one command: the nanoseconds before and after it, its result, and further values."""

    began: int
    ended: int
    result: int
    more: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return (self.ended - self.began) / 1e9

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Start and synchronise of each kernel, as `stamps` prints them."""
        return [(int(began), int(ended)) for began, ended in zip(self.more[::2], self.more[1::2], strict=True)]


class ClientDied(Exception):
    """A client ended before it answered."""


class Client:
    """A scripted client process. The machine ends it if it still runs."""

    def __init__(self, command: list[str], environment: dict[str, str], complaints: Path) -> None:
        self._complaints = complaints
        with complaints.open("wb") as stderr:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, bufsize=0
            )
        self._heard = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def said(self) -> list[str]:
        """The lines that the hook has written to stderr."""
        return [line for line in self._complaints.read_text().splitlines() if line.startswith("orion:")]

    def send(self, command: str) -> None:
        """Send a command without waiting for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(command.encode() + b"\n")

    def heard_something(self, seconds: float) -> bool:
        """Return whether an answer comes within `seconds`."""
        assert self.process.stdout is not None
        return b"\n" in self._heard or bool(select.select([self.process.stdout], [], [], seconds)[0])

    def answer(self, seconds: float = DEADLINE) -> Answer:
        """Return the next answer."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._heard:
            left = deadline - time.monotonic()
            assert left > 0, f"no answer within {seconds} s"
            if not select.select([self.process.stdout], [], [], left)[0]:
                continue
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                raise ClientDied(self.process.wait(seconds))
            self._heard += part
        line, _, self._heard = self._heard.partition(b"\n")
        status, _, began, ended, result, *more = line.decode().split()
        assert status == "ok"
        return Answer(int(began), int(ended), int(result), [float(number) for number in more])

    def do(self, command: str, seconds: float = DEADLINE) -> Answer:
        """Send a command and return the answer, whatever its result."""
        self.send(command)
        return self.answer(seconds)

    def must(self, command: str, seconds: float = DEADLINE) -> Answer:
        """Send a command that must succeed, and return the answer."""
        answer = self.do(command, seconds)
        assert answer.result == 0, f"{command}: CUDA result {answer.result}"
        return answer

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal and return when, in monotonic nanoseconds."""
        when = time.monotonic_ns()
        self.process.send_signal(number)
        return when

    def reap(self, seconds: float = DEADLINE) -> int:
        """Wait for the process's end and return its status."""
        return self.process.wait(seconds)

    def threads(self) -> list[Path]:
        """The client's threads, as folders of /proc, without the simulated GPU's thread, which does a device's work."""
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        return [thread for thread in threads if (thread / "comm").read_text().strip() != "sim-keeper"]

    def cpu_seconds(self) -> float:
        """CPU time of the client's threads so far, without the simulated GPU's thread."""
        return cpu_seconds_of(self.threads())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(DEADLINE)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


@contextlib.contextmanager
def busy(hp: Client, milliseconds: float) -> Iterator[Answer]:
    """Keep hp's GPU busy from the start of the body on, with one kernel of that length. At the end, wait for hp.

    Yields:
        the answer of the launch.
    """
    yield hp.must(f"launch 1 {milliseconds * 1000:.0f}")
    hp.must("sync", DEADLINE + milliseconds / 1000)


def warm(be: Client, microseconds: int, launches: int = 40) -> None:
    """Let a be client learn a kernel's duration, so that the kernel is no longer unknown."""
    for _ in range(launches):
        be.must(f"run 1 {microseconds}")
