"""Starts, finds and ends the supervisor of a cluster; shares one cluster among the processes of a test run."""

import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from testbed import place
from testbed.access import Access
from testbed.errors import Failed
from testbed.supervisor import lock_path

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 20.0  # seconds until a supervisor must have ended


def keeper(folder: Path) -> int | None:
    """Return the process ID of the supervisor of `folder`, if one runs."""
    try:
        lock = lock_path(folder).open()
    except FileNotFoundError:
        return None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(lock.read() or 0) or None
    return None


def start_or_join(folder: Path, users: Path | None = None, nodes: int = 0, gpus: int = 0) -> Access:
    """Start a supervisor that outlives this process, unless one runs for `folder`; return when everything is ready.

    A new cluster has `nodes` nodes, each with Orion and `gpus` simulated GPUs. If `gpus` is 0, Orion is not installed.

    Raises:
        Failed: the supervisor did not start; the text says why.
    """
    with _alone(folder):
        return Access(folder) if keeper(folder) else _start(folder, users, nodes, gpus)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time start or end the cluster in `folder`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".gate").open("a") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        yield


def _start(folder: Path, users: Path | None, nodes: int, gpus: int) -> Access:
    shutil.rmtree(folder, ignore_errors=True)  # a supervisor that was killed may have left it
    command = [sys.executable, "-m", "testbed.supervisor", str(folder)]
    command += ["--nodes", str(nodes), "--gpus", str(gpus), *(["--users", str(users)] if users else [])]
    log = folder.with_name(folder.name + ".log")
    with log.open("w") as output:
        supervisor = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=output, text=True,
            start_new_session=True,
        )  # fmt: skip
    assert supervisor.stdout
    with supervisor.stdout as output:
        try:
            said = output.read()
        except BaseException:
            supervisor.terminate()
            supervisor.wait(PATIENCE)
            raise
    if said.strip() != "ready":
        supervisor.wait(PATIENCE)
        raise Failed(said.strip() or f"the supervisor printed nothing; its log {log}:\n{log.read_text()[-2000:]}")
    supervisor.returncode = 0  # it outlives us, so Popen must not warn that nobody waited for it
    return Access(folder)


def stop(folder: Path) -> bool:
    """End the supervisor of `folder` and remove what it left; return whether one ran."""
    with _alone(folder):
        pid = keeper(folder)
        if pid:
            _end(pid)
        place.sweep()
        shutil.rmtree(folder, ignore_errors=True)
        for suffix in (".lock", ".log"):
            folder.with_name(folder.name + suffix).unlink(missing_ok=True)
        return pid is not None


def _end(pid: int) -> None:
    """End a supervisor with SIGTERM, or else SIGKILL; return when the process is gone, which is later than its lock."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = select.poll()
    ended.register(process, select.POLLIN)
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, signal.SIGTERM)
        if not ended.poll(PATIENCE * 1000):
            signal.pidfd_send_signal(process, signal.SIGKILL)  # the kernel kills its components too
            ended.poll()
    os.close(process)


@contextlib.contextmanager
def shared(folder: Path) -> Iterator[Access]:
    """Use the control plane that all users of the same folder share.

    The first user starts it. It ends, and its files are removed, when the last user has left this context or was
    killed.

    Raises:
        Failed: it did not start.
    """
    plane = folder / "plane"
    with _counted_in(folder / "users") as users:
        yield start_or_join(plane, Path(users.name))
        if not keeper(plane):
            raise Failed(f"the control plane ended before its users: {plane.with_name('plane.log').read_text()}")


def _counted_in(path: Path) -> TextIO:
    """Return the file of users with a shared lock; wait while a supervisor is ending."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        users = path.open("a")
        fcntl.flock(users, fcntl.LOCK_SH)
        if path.exists() and os.path.samestat(path.stat(), os.fstat(users.fileno())):
            return users
        users.close()  # the supervisor that ended has removed the file
