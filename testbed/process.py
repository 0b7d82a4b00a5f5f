"""The components of a cluster as child processes; none outlives its parent, and each writes its output to a file."""

import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from testbed.errors import Failed
from testbed.waiting import wait_until

TETHERED = Path(__file__).with_name("tethered.py")


def tether(command: Sequence[str], like: int = 0) -> list[str]:
    """Return a command line that runs `command` and ends it when this process ends.

    The program shares the mounts and the host name of the process `like`, unless `like` is 0.
    """
    return [sys.executable, "-I", "-S", str(TETHERED), str(os.getpid()), str(like), *command]


class Process:
    """A component: its command, its log, and the child process if one runs.

    The child has its own session, so that Ctrl-C on the terminal reaches only us, and we end components in order. It
    starts in the namespaces of the calling thread's children, with the mounts and host name of the process `like`.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        like: int = 0,
    ) -> None:
        self.name, self.command, self.log = name, list(command), log
        self._environment, self._like = environment, like
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, options: Sequence[str] = ()) -> None:
        """Start the component, with more options of this start alone; its output is appended to the log."""
        with self.log.open("ab") as output:
            self._child = subprocess.Popen(
                tether([*self.command, *options], self._like),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int | None:
        """The process ID from `start` to `stop`, even if the process has ended unexpectedly."""
        return self._child.pid if self._child else None

    @property
    def runs(self) -> bool:
        """Whether the process runs now."""
        return self._child is not None and self._child.poll() is None

    def ended(self) -> str:
        """Return how the process ended unexpectedly, with the end of its log, or an empty text."""
        status = self._child.poll() if self._child else None
        if status is None:
            return ""
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"{self.name} {how}; the end of its log {self.log}:\n{self.last_words()}"

    def last_words(self, lines: int = 8) -> str:
        """Return the end of the log, indented."""
        with self.log.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - 8192))
            text = log.read().decode(errors="replace")
        return "\n".join(f"  {line}" for line in text.splitlines()[-lines:])

    def stop(self, patience: float = 0) -> None:
        """End the process: SIGTERM and `patience` seconds to react, if that is more than 0; then SIGKILL."""
        child, self._child = self._child, None
        if child is None:
            return
        try:
            if patience > 0:
                child.terminate()
                child.wait(patience)
        except subprocess.TimeoutExpired:
            pass
        finally:
            child.kill()
            child.wait()


class Processes:
    """Components by name, which write their logs to the folder `logs`."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._processes: dict[str, Process] = {}

    def pids(self) -> dict[str, int]:
        """Return the IDs of all processes that should run."""
        return {name: process.pid for name, process in self._processes.items() if process.pid}

    def fault(self) -> str:
        """Return how the first process that ended unexpectedly did so, or an empty text."""
        return next((fault for process in self._processes.values() if (fault := process.ended())), "")

    def _wait(self, otherwise: str, condition: Callable[[], bool]) -> None:
        wait_until(condition, otherwise, self.fault, f"logs are in {self._logs}")


class Running(ABC):
    """A context that starts processes and stops them at its end. If it ends because of `Failed`, their logs stay."""

    @abstractmethod
    def start(self) -> None:
        """Start everything."""

    @abstractmethod
    def stop(self, keep_logs: bool = False) -> None:
        """End everything, and remove its files; with `keep_logs`, keep the logs."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException as reason:
            self.stop(keep_logs=isinstance(reason, Failed))
            raise
        return self

    def __exit__(self, kind: object, reason: object, trace: object) -> None:
        self.stop(keep_logs=isinstance(reason, Failed))
