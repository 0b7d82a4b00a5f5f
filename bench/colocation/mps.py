"""A private MPS daemon: started for a measurement, ended with it, and never met by anybody else.

Its pipe directory is its own, and unhooked systems get an empty one, so no process becomes a client by accident. A
guardian process holds the other end of a pipe to this one: however this process ends, SIGKILL too, the pipe closes
and the guardian tells the daemon to quit. All clients of a server share its fate; whoever sees one of them fail asks
`servers` whether the server is still the same, and restarts all.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

CONTROL = "nvidia-cuda-mps-control"
SERVER = "nvidia-cuda-mps-server"
ANSWER_SECONDS = 20.0
QUIT_SECONDS = 5  # that the daemon gives its servers before it ends them
GUARDIAN = f"cat >/dev/null; echo quit -t {QUIT_SECONDS} | {CONTROL} >/dev/null 2>&1"


class MpsError(RuntimeError):
    """No MPS daemon can be had; one sentence."""


def missing() -> str | None:
    """Say what is missing for MPS; None if nothing is."""
    absent = [program for program in (CONTROL, SERVER) if shutil.which(program) is None]
    return f"MPS needs {' and '.join(absent)}, found nowhere in PATH" if absent else None


class MpsDaemon:
    """One daemon for one GPU; a context manager that leaves nothing behind."""

    def __init__(self, environment: dict[str, str], gpu: str) -> None:
        """Prepare; entering the context starts it.

        Args:
            environment: Of processes on that GPU.
            gpu: Its UUID.
        """
        self._folder = Path()
        self._base = environment
        self._gpu = gpu
        self._guardian: subprocess.Popen[bytes] | None = None
        self._daemon_id = 0
        self.client_environment: dict[str, str] = {}

    def __enter__(self) -> Self:
        if lacking := missing():
            raise MpsError(lacking)
        self._folder = Path(tempfile.mkdtemp(prefix="orion-", dir="/tmp"))  # short: sockets are in it
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def servers(self) -> set[int]:
        """Return the process ids of the daemon's servers; none before the first client.

        Raises:
            MpsError: The daemon itself is gone.
        """
        return {int(line) for line in self._ask("get_server_list").split() if line.isdecimal()}

    def last_words(self) -> str:
        """Return the end of the servers' log."""
        with contextlib.suppress(OSError):
            lines = (self._folder / "log" / "server.log").read_text(errors="replace").splitlines()
            return " / ".join(line.strip() for line in lines[-3:])
        return ""

    def _start(self) -> None:
        # Before the daemon, so that there is no moment without: quitting a daemon that is not there does no harm.
        self._guardian = subprocess.Popen(
            ["sh", "-c", GUARDIAN], env=self._environment(), stdin=subprocess.PIPE, start_new_session=True
        )
        said = self._folder / "said"  # a file: the daemon might keep a pipe open, and nobody would see its end
        try:
            with said.open("wb") as told:
                done = subprocess.run(
                    [CONTROL, "-d"], env=self._environment(), stdin=subprocess.DEVNULL, stdout=told, stderr=told,
                    timeout=ANSWER_SECONDS, check=False, start_new_session=True,
                )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MpsError(f"{CONTROL} -d did not start: {error}") from error
        if done.returncode != 0:
            words = " ".join(said.read_text(errors="replace").split())
            raise MpsError(f"{CONTROL} -d ended with status {done.returncode}: {words or '(it said nothing)'}")
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
            raise MpsError(f"the MPS daemon does not answer: {error}") from error
        if done.returncode != 0 or "Cannot find" in done.stdout + done.stderr:
            raise MpsError(f"the MPS daemon has ended: {' '.join((done.stderr or done.stdout).split())}")
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
        self._kill_what_stayed()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _kill_what_stayed(self) -> None:
        """End the daemon by force if it is there after its quit: only if the process still is what it was."""
        if not self._daemon_id:
            return
        deadline = time.monotonic() + 2.0
        command = Path(f"/proc/{self._daemon_id}/comm")
        while command.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        with contextlib.suppress(OSError):
            if command.read_text().strip() == CONTROL[:15]:
                os.kill(self._daemon_id, signal.SIGKILL)
