"""Runs the node agent as a process."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import IO

from testbed.process_costs import cpu_seconds_of
from tests.loaded import Started, start
from tests.waiting import DEADLINE

GPU = "GPU-00000000-0000-4000-8000-000000000000"
""" The first of the GPUs that have only names. """


class AgentProcess:
    """An agent that can be killed and started again with the same root."""

    def __init__(self, root: Path, library: Path) -> None:
        self.root = root
        self.library = library
        self.process: Started | None = None
        self.lines: list[str] = []
        """ The log of the agent that was started last. """
        self.metrics_port = 0
        """ From the agent's log, if it serves metrics. """

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def command(self, *options: str) -> list[str]:
        return [
            *(sys.executable, "-m", "orion.node_agent", "--root", str(self.root)),
            *("--gpus", "simulated", "--simulated-library", str(self.library), "--metrics-address", "", *options),
        ]

    def start(self, *options: str) -> None:
        reads, writes = os.pipe()
        log = os.fdopen(reads)
        with os.fdopen(writes, "wb") as stderr:
            self.process = self.begin(stderr, *options)
        self.lines = []
        for line in log:
            self.lines.append(line)
            if " metrics: on " in line:
                self.metrics_port = int(line.rpartition(":")[2].partition("/")[0])
            if " agent: serves " in line:
                break
        assert self.process.poll() is None, "the agent ended at once"
        self._reader = threading.Thread(target=self._read, args=(log,))
        self._reader.start()

    def log(self) -> str:
        """Return the log of the agent that was started last."""
        return "".join(self.lines)

    def begin(self, stderr: IO[bytes], *options: str) -> Started:
        """Start a process; a subclass may start it in another way."""
        _, _, module, *arguments = self.command(*options)
        return start(module, arguments, stderr)

    def _read(self, log: IO[str]) -> None:
        with log:
            for line in log:
                self.lines.append(line)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        status = self.process.wait(DEADLINE)
        self._reader.join()  # ends with the agent, whose stderr no other process has
        self.process = None
        return status

    def slot(self, name: str, gpu: str = GPU) -> Path:
        return self.root / "gpus" / gpu / name

    def descriptors(self) -> int:
        """Return the number of open descriptors: the minimum of five counts, because a write opens a file briefly.

        A connection that has just ended may still count: compare with `<=`.
        """
        counts = []
        for _ in range(5):
            counts.append(len(os.listdir(f"/proc/{self.pid}/fd")))
            time.sleep(0.002)
        return min(counts)

    def cpu_seconds(self) -> float:
        """Return the CPU time of all threads."""
        return cpu_seconds_of(Path(f"/proc/{self.pid}/task").iterdir())
