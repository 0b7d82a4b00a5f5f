"""The folder that the agent and the MPS daemon share: $ORION_ROOT/mps.

    daemon.lock             held as an open file description lock by the running `orion mps-daemon`
    <GPU uuid>/wanted       written by the agent: this GPU needs a control daemon
    <GPU uuid>/state        written by the MPS daemon: the control daemon's state; removed when the daemon has ended
    <GPU uuid>/pipe/        the control daemon's own CUDA_MPS_PIPE_DIRECTORY
    <GPU uuid>/clients/     containers' CUDA_MPS_PIPE_DIRECTORY: only the clients' socket; empty if no client can join
    <GPU uuid>/log/         CUDA_MPS_LOG_DIRECTORY

A rename replaces each file, so a reader finds the old file or the new one. A state is valid only while the lock is
held. The kernel releases the lock when the process ends in any way, so the state of a dead MPS daemon is never used.
A heartbeat would be worse: it detects a death late, and a busy node can miss it.
"""

import contextlib
import fcntl
import json
import os
import re
import struct
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from orion.atomic_files import replace_file

CONTROL_SOCKET = "control"
""" The socket through which clients join. """

_GPU_NAME = re.compile(r"GPU-[A-Za-z0-9-]{1,43}")
_FLOCK = struct.Struct("hhqqi4x")
""" struct flock of 64-bit Linux: type, whence, start, length, process. """
_RUNS, _STATES_VALID = (_FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0) for byte in (0, 1))
""" The lock has two bytes. The holder of byte 0 is the MPS daemon. It locks byte 1 when it has removed the states of
the previous MPS daemon. """


class Phase(StrEnum):
    """The state of a GPU's control daemon."""

    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"
    """ The control daemon ended or did not start. The MPS daemon starts it again after a pause. """
    STOPPING = "stopping"


@dataclass(frozen=True)
class Wanted:
    """What the agent requests for a GPU."""

    simulated: bool = False


@dataclass(frozen=True)
class State:
    """What the MPS daemon reports about a GPU's control daemon."""

    phase: Phase
    since: float
    """ Seconds since 1970. """
    process_id: int = 0
    """ The control daemon's process, in the node's pid namespace (the pod has hostPID); 0: no process runs. """
    servers: tuple[int, ...] = ()
    """ Process ids of its servers, in the node's pid namespace; the first server starts with the first client. """
    several_users: bool = True
    """ True: clients of all user ids share one server. False: one user id at a time. """
    failures: int = 0
    """ Consecutive failures. """
    message: str = ""
    """ What is wrong, in one sentence; empty: nothing. """


class MpsFolder:
    """The shared folder of one node. The agent and the MPS daemon both create what is missing.

    Args:
        root: the agent's root directory.
    """

    def __init__(self, root: Path) -> None:
        self.path = root / "mps"

    # -- Used by both sides --------------------------------------------------------------------------------------------

    def gpu(self, uuid: str) -> Path:
        """Return a GPU's folder.

        Raises:
            ValueError: `uuid` cannot be a GPU's UUID.
        """
        if not _GPU_NAME.fullmatch(uuid):
            raise ValueError(f"{uuid!r} cannot be a GPU's UUID")
        return self.path / uuid

    def pipe(self, uuid: str) -> Path:
        """Return the folder of the control daemon's own sockets; includes the socket for administrators."""
        return self.gpu(uuid) / "pipe"

    def clients(self, uuid: str) -> Path:
        """Return the folder that containers see. It is never replaced, because containers have it mounted."""
        return self.gpu(uuid) / "clients"

    def log(self, uuid: str) -> Path:
        """Return the folder for the logs of a GPU's control daemon and its servers."""
        return self.gpu(uuid) / "log"

    def make(self, uuid: str) -> None:
        """Make a GPU's folders. Every user can reach the clients' folder; only root can change it.

        Raises:
            OSError: the folders cannot be made.
        """
        own, shared = (self.pipe(uuid), self.log(uuid)), (self.path, self.gpu(uuid), self.clients(uuid))
        for folder, mode in (*((each, 0o755) for each in shared), *((each, 0o700) for each in own)):
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(mode)

    def daemon_lives(self) -> bool:
        """Return whether an MPS daemon runs on this node now. Asks the kernel who holds the lock; takes no lock."""
        try:
            descriptor = os.open(self.path / "daemon.lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _STATES_VALID)
            return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
        except OSError:
            return False
        finally:
            os.close(descriptor)

    # -- The agent's side ----------------------------------------------------------------------------------------------

    def want(self, uuid: str, wanted: Wanted | None) -> None:
        """Request a control daemon for a GPU; None: withdraw the request.

        Raises:
            OSError: the file cannot be written.
        """
        if wanted is None:
            with contextlib.suppress(FileNotFoundError):
                (self.gpu(uuid) / "wanted").unlink()
            return
        self.make(uuid)
        replace_file(self.gpu(uuid) / "wanted", json.dumps(asdict(wanted)).encode())

    def state(self, uuid: str) -> State | None:
        """Return the state of a GPU's control daemon; None: the GPU has no control daemon, or no MPS daemon runs."""
        try:
            plain = _read(self.gpu(uuid) / "state")
        except OSError:
            plain = {}
        if plain is None or not self.daemon_lives():
            return None
        try:
            return State(
                phase=Phase(plain["phase"]),
                since=float(plain["since"]),
                process_id=int(plain.get("process_id", 0)),
                servers=tuple(int(each) for each in plain.get("servers", ())),
                several_users=bool(plain.get("several_users", True)),
                failures=int(plain.get("failures", 0)),
                message=str(plain.get("message", "")),
            )
        except (KeyError, TypeError, ValueError):
            return State(Phase.FAILED, 0.0, message="the MPS daemon's state cannot be read: is it of another version?")

    # -- The MPS daemon's side -----------------------------------------------------------------------------------------

    def take(self) -> int | None:
        """Become the MPS daemon: return the descriptor that holds the lock, or None if another process holds it.

        Raises:
            OSError: the folder cannot be made.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o755)
        descriptor = os.open(self.path / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _RUNS)
        except OSError:
            os.close(descriptor)
            return None
        for uuid in self.known():
            self.write_state(uuid, None)
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _STATES_VALID)
        return descriptor

    def wanted(self) -> dict[str, Wanted]:
        """Return the requests of the agent, by GPU. An invalid file counts as a request for a real GPU.

        Raises:
            OSError: the folder cannot be read.
        """
        found: dict[str, Wanted] = {}
        with contextlib.suppress(FileNotFoundError):
            for entry in sorted(os.listdir(self.path)):
                if _GPU_NAME.fullmatch(entry) and (read := _read(self.path / entry / "wanted")) is not None:
                    found[entry] = Wanted(simulated=bool(read.get("simulated", False)))
        return found

    def known(self) -> list[str]:
        """Return the GPUs that have a folder."""
        try:
            return sorted(entry for entry in os.listdir(self.path) if _GPU_NAME.fullmatch(entry))
        except OSError:
            return []

    def write_state(self, uuid: str, state: State | None) -> None:
        """Write the state of a GPU's control daemon; None: remove it.

        Raises:
            OSError: the file cannot be written.
        """
        if state is None:
            with contextlib.suppress(FileNotFoundError):
                (self.gpu(uuid) / "state").unlink()
        else:
            replace_file(self.gpu(uuid) / "state", json.dumps(asdict(state)).encode())


def _read(path: Path) -> dict[str, Any] | None:
    """Return a file's content; None: there is no file; empty: the content is invalid.

    Raises:
        OSError: the file cannot be read now.
    """
    try:
        plain = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (IsADirectoryError, ValueError):
        return {}
    return plain if isinstance(plain, dict) else {}
