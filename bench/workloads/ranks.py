"""A job of several processes, each on a GPU of its own, such as data-parallel training under `torchrun`.

The worker is rank 0 and starts the other ranks. Before each of its steps, rank 0 sends them one byte, so all ranks run
equally many steps although only rank 0 has commands and a clock. The variables are those of `torchrun`.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from mmap import PAGESIZE
from typing import Any

from orion.bench.workload import Workload

STEP = b"s"
SHARED_FILE = "ORION_BENCH_RANKS"
OTHER_RANK = "orion.bench.workers.rank"


def in_job() -> bool:
    """Return whether this process is a rank of a job."""
    return SHARED_FILE in os.environ


def index() -> int:
    """Return this process's rank; 0 also if it is alone."""
    return int(os.environ["RANK"]) if in_job() else 0


def shared_file() -> str:
    """Return the path of a file of one page that all ranks of this process's job share; it begins with zeros."""
    return os.environ[SHARED_FILE]


class Job:
    """The workload of rank 0, which tells the other ranks when to step."""

    def __init__(self, kind: str, options: dict[str, Any], count: int, build: Callable[[], Workload]) -> None:
        """Start the other ranks, then set up this one.

        Args:
            kind: The kind of workload that each rank runs.
            options: Its options.
            count: The number of ranks.
            build: Sets up this process's own workload; called when it is a rank.
        """
        self._file = tempfile.NamedTemporaryFile()  # noqa: SIM115  (exists as long as this process)
        self._file.write(bytes(PAGESIZE))
        self._file.flush()
        os.environ |= {"RANK": "0", "WORLD_SIZE": str(count), SHARED_FILE: self._file.name}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        words = [sys.executable, "-Pm", OTHER_RANK, kind, json.dumps(options)]
        self._others = [
            subprocess.Popen(words, stdin=subprocess.PIPE, stdout=sys.stderr, env={**os.environ, "RANK": str(rank)})
            for rank in range(1, count)
        ]
        self._own = build()
        self.unit, self.gpu, self.trace = self._own.unit, self._own.gpu, self._own.trace
        self.amount = self._own.amount * count
        self.details = self._own.details

    def step(self) -> None:
        """Do one step on each rank."""
        for other in self._others:
            assert other.stdin is not None
            other.stdin.write(STEP)
            other.stdin.flush()
        self._own.step()

    def finish(self) -> None:
        """Wait until this rank's work has completed; its collectives have completed on all ranks then."""
        self._own.finish()

    def throughout(self) -> AbstractContextManager[Any]:
        """Return the context of this rank's workload."""
        return self._own.throughout()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
