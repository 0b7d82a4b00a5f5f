"""A private MPS daemon that starts and ends with a measurement.

The daemon has its own pipe directory. Systems without MPS get an empty pipe directory, so that none of their processes
becomes an MPS client by accident. A guardian process reads from a pipe of this process. When this process ends, even by
SIGKILL, the pipe closes and the guardian makes the daemon quit. If an MPS server dies, all its clients die. So if a
client fails, the harness asks `servers` whether the server is still the same, and restarts all clients.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from orion.errors import Unavailable

CONTROL = "nvidia-cuda-mps-control"
SERVER = "nvidia-cuda-mps-server"
ANSWER_SECONDS = 20.0
QUIT_SECONDS = 5  # for servers to end before the daemon ends them
GUARDIAN = f"cat >/dev/null; echo quit -t {QUIT_SECONDS} | {CONTROL} >/dev/null 2>&1"


def missing() -> str | None:
    """Return which programs of MPS are missing, as a sentence; None if no program is missing."""
    absent = [program for program in (CONTROL, SERVER) if shutil.which(program) is None]
    return f"MPS needs {' and '.join(absent)}, which PATH does not have" if absent else None


class MpsDaemon:
    """One daemon for one GPU; a context manager that ends the daemon and removes its files."""

    def __init__(self, environment: dict[str, str], gpu: str) -> None:
        """Store the settings; entering the context starts the daemon.

        Args:
            environment: Environment of processes on that GPU.
            gpu: UUID of the GPU.
        """
        self._folder = Path()
        self._base = environment
        self._gpu = gpu
        self._guardian: subprocess.Popen[bytes] | None = None
        self._daemon_id = 0
        self.client_environment: dict[str, str] = {}

    def __enter__(self) -> Self:
        if lacking := missing():
            raise Unavailable(lacking)
        # The path is short, because the folder contains Unix sockets: their paths have at most 107 characters.
        self._folder = Path(tempfile.mkdtemp(prefix="orion-", dir="/tmp"))
        pipe, log = self._folder / "pipe", self._folder / "log"
        pipe.mkdir()
        log.mkdir()
        self.client_environment = {
            "CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(log), "CUDA_VISIBLE_DEVICES": self._gpu,
        }  # fmt: skip
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def servers(self) -> set[int]:
        """Return the process ids of the daemon's servers; empty before the first client.

        Raises:
            Unavailable: The daemon itself has ended.
        """
        return {int(line) for line in self._ask("get_server_list").split() if line.isdecimal()}

    def end_of_log(self) -> str:
        """Return the last lines of the servers' log."""
        with contextlib.suppress(OSError):
            lines = (self._folder / "log" / "server.log").read_text(errors="replace").splitlines()
            return " / ".join(line.strip() for line in lines[-3:])
        return ""

    def _start(self) -> None:
        # The guardian starts first, so the daemon never runs without it. "quit" without a daemon is harmless.
        self._guardian = subprocess.Popen(
            ["sh", "-c", GUARDIAN], env=self._environment(), stdin=subprocess.PIPE, start_new_session=True
        )
        output = self._folder / "output"  # a file: the daemon may keep a pipe open, which would block `run`
        try:
            with output.open("wb") as writer:
                done = subprocess.run(
                    [CONTROL, "-d"], env=self._environment(), stdin=subprocess.DEVNULL, stdout=writer, stderr=writer,
                    timeout=ANSWER_SECONDS, check=False, start_new_session=True,
                )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"{CONTROL} -d did not start: {error}") from error
        if done.returncode != 0:
            words = " ".join(output.read_text(errors="replace").split())
            raise Unavailable(f"{CONTROL} -d ended with status {done.returncode}: {words or '(no output)'}")
        self._ask("get_server_list")
        with contextlib.suppress(OSError, ValueError):
            self._daemon_id = int((self._folder / "pipe" / f"{CONTROL}.pid").read_text())

    def _ask(self, question: str) -> str:
        try:
            done = subprocess.run(
                [CONTROL], env=self._environment(), input=f"{question}\n", capture_output=True,
                text=True, timeout=ANSWER_SECONDS, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"the MPS daemon does not answer: {error}") from error
        if done.returncode != 0 or "Cannot find" in done.stdout + done.stderr:
            raise Unavailable(f"the MPS daemon has ended: {' '.join((done.stderr or done.stdout).split())}")
        return done.stdout

    def _environment(self) -> dict[str, str]:
        return {**self._base, **self.client_environment}

    def _end(self) -> None:
        if self._guardian is not None and self._guardian.stdin is not None:
            self._guardian.stdin.close()
            try:
                self._guardian.wait(QUIT_SECONDS + ANSWER_SECONDS)
            except subprocess.TimeoutExpired:
                self._guardian.kill()
                self._guardian.wait()
        self._kill_daemon()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _kill_daemon(self) -> None:
        """Kill the daemon if it still runs after "quit". Check the process's name first: its id may be reused."""
        if not self._daemon_id:
            return
        deadline = time.monotonic() + 2.0
        command = Path(f"/proc/{self._daemon_id}/comm")
        while command.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        with contextlib.suppress(OSError):
            if command.read_text().strip() == CONTROL[:15]:
                os.kill(self._daemon_id, signal.SIGKILL)
