"""The folder that the agent and the MPS daemon share: $ORION_ROOT/mps.

    daemon.lock             held (an open file description lock) by the one `orion mps-daemon` that lives
    <GPU uuid>/wanted       the agent: this GPU shall have a control daemon
    <GPU uuid>/state        the MPS daemon: how that is; gone once nothing runs any more
    <GPU uuid>/pipe/        the control daemon's own CUDA_MPS_PIPE_DIRECTORY
    <GPU uuid>/clients/     that of containers: the socket by which clients join, and nothing else; empty while none can
    <GPU uuid>/log/         CUDA_MPS_LOG_DIRECTORY

Files are replaced by rename, so whoever reads finds the one before or the new one. A state counts while the lock is
held: the kernel lets go of it when the process ends, whatever its end, so a state without a living
MPS daemon does not count. Refused: a heartbeat, which is late by its own length and goes stale on a busy node.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

CONTROL_SOCKET = "control"
""" By which clients join. """

_GPU_NAME = re.compile(r"GPU-[A-Za-z0-9-]{1,43}")
_FLOCK = struct.Struct("hhqqi4x")
""" struct flock of 64-bit Linux: type, whence, start, length, process. """
_BEING, _SPEAKING = (_FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0) for byte in (0, 1))
""" The lock's two bytes: being the MPS daemon, and, once the states of the one before are gone, being its word. """


class Phase(StrEnum):
    """How a GPU's control daemon is."""

    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"
    """ It ended or does not come up, and is started again after a while. """
    STOPPING = "stopping"


@dataclass(frozen=True)
class Wanted:
    """What the agent wants for a GPU."""

    simulated: bool = False


@dataclass(frozen=True)
class State:
    """What the MPS daemon says of a GPU's control daemon."""

    phase: Phase
    since: float
    """ Seconds since 1970. """
    process_id: int = 0
    """ Of the control daemon, as the node counts (its pod has hostPID); 0: there is none. """
    servers: tuple[int, ...] = ()
    """ Its servers, in the same terms; the first comes with the first client. """
    several_users: bool = True
    """ Clients of any user id share one server; else those of one user at a time. """
    failures: int = 0
    """ In a row. """
    message: str = ""
    """ A sentence of what is wrong; empty: nothing. """


class MpsFolder:
    """One node's. Both sides make what is missing.

    Args:
        root: the agent's.
    """

    def __init__(self, root: Path) -> None:
        self.path = root / "mps"

    # -- What both ask -------------------------------------------------------------------------------------------------

    def gpu(self, uuid: str) -> Path:
        """Return a GPU's folder.

        Raises:
            ValueError: a name that is no GPU's.
        """
        if not _GPU_NAME.fullmatch(uuid):
            raise ValueError(f"{uuid!r} cannot be a GPU's UUID")
        return self.path / uuid

    def pipe(self, uuid: str) -> Path:
        """Return where a GPU's control daemon has its sockets, those for administrators among them."""
        return self.gpu(uuid) / "pipe"

    def clients(self, uuid: str) -> Path:
        """Return what containers see: a folder that stays, since they have it mounted."""
        return self.gpu(uuid) / "clients"

    def log(self, uuid: str) -> Path:
        """Return where a GPU's control daemon and its servers write what happens."""
        return self.gpu(uuid) / "log"

    def make(self, uuid: str) -> None:
        """Make a GPU's folders; any user passes through to what is for clients, nobody but root changes it.

        Raises:
            OSError: the disk refuses.
        """
        own, shared = (self.pipe(uuid), self.log(uuid)), (self.path, self.gpu(uuid), self.clients(uuid))
        for folder, mode in (*((each, 0o755) for each in shared), *((each, 0o700) for each in own)):
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(mode)

    def daemon_lives(self) -> bool:
        """Return whether an MPS daemon runs on this node now; asks the kernel for the lock's holder, and takes none."""
        try:
            descriptor = os.open(self.path / "daemon.lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _SPEAKING)
            return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
        except OSError:
            return False
        finally:
            os.close(descriptor)

    # -- The agent's side ----------------------------------------------------------------------------------------------

    def want(self, uuid: str, wanted: Wanted | None) -> None:
        """Let a GPU have a control daemon, or (None) no longer.

        Raises:
            OSError: the disk refuses.
        """
        if wanted is None:
            with contextlib.suppress(FileNotFoundError):
                (self.gpu(uuid) / "wanted").unlink()
            return
        self.make(uuid)
        _write(self.gpu(uuid) / "wanted", asdict(wanted))

    def state(self, uuid: str) -> State | None:
        """Return how a GPU's control daemon is; None: none runs, or nobody lives to say so."""
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
        """Be the MPS daemon: return the descriptor that holds the lock, or None where another process does.

        Raises:
            OSError: the folder cannot be made.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o755)
        descriptor = os.open(self.path / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _BEING)
        except OSError:
            os.close(descriptor)
            return None
        for uuid in self.known():
            self.say(uuid, None)
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _SPEAKING)
        return descriptor

    def wanted(self) -> dict[str, Wanted]:
        """Return what is wanted, by GPU; a file that makes no sense wants a real GPU's daemon.

        Raises:
            OSError: the folder cannot be read.
        """
        found: dict[str, Wanted] = {}
        with contextlib.suppress(FileNotFoundError):
            for entry in sorted(os.listdir(self.path)):
                if _GPU_NAME.fullmatch(entry) and (said := _read(self.path / entry / "wanted")) is not None:
                    found[entry] = Wanted(simulated=bool(said.get("simulated", False)))
        return found

    def known(self) -> list[str]:
        """Return the GPUs that have a folder."""
        try:
            return sorted(entry for entry in os.listdir(self.path) if _GPU_NAME.fullmatch(entry))
        except OSError:
            return []

    def say(self, uuid: str, state: State | None) -> None:
        """Say how a GPU's control daemon is; None: it has none.

        Raises:
            OSError: the disk refuses.
        """
        if state is None:
            with contextlib.suppress(FileNotFoundError):
                (self.gpu(uuid) / "state").unlink()
        else:
            _write(self.gpu(uuid) / "state", asdict(state))


def _read(path: Path) -> dict[str, Any] | None:
    """Return what a file says; None: it is not there; empty: it makes no sense.

    Raises:
        OSError: it cannot be read now.
    """
    try:
        plain = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (IsADirectoryError, ValueError):
        return {}
    return plain if isinstance(plain, dict) else {}


def _write(path: Path, plain: Mapping[str, Any]) -> None:
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        fresh.write_text(json.dumps(plain))
        os.replace(fresh, path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
