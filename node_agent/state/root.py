"""The agent's root directory: its lock, which allows only one agent, and the paths in it."""

import contextlib
import fcntl
import os
import re
from pathlib import Path

from orion.crds.allocation import OWNER_FILE
from orion.errors import Conflict, Invalid

_GPU_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,46}")
_SLOT_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class Root:
    """$ORION_ROOT; this process holds its lock.

    Raises:
        Conflict: another agent holds the lock.
        OSError: the directory cannot be made or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o755)
        self._lock = os.open(self.path / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._lock)
            raise Conflict(
                f"another agent (process {holder}) serves {self.path}; end it, or use another root"
            ) from None
        with contextlib.suppress(OSError):  # a full disk: the process id is only for messages
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    @property
    def state(self) -> Path:
        """The state file for the next agent."""
        return self.path / "state.json"

    @property
    def gpus(self) -> Path:
        """The list of GPUs that were found last, for a start without the driver."""
        return self.path / "gpus.json"

    @property
    def cordons(self) -> Path:
        """The names of the cordoned GPUs, for a start without the API server."""
        return self.path / "cordons.json"

    @property
    def owner(self) -> Path:
        """Which program gives the node's slots, where each node chooses."""
        return self.path / OWNER_FILE

    def knowledge(self, gpu: str) -> Path:
        """Return the directory of what clients learnt; it has a file for each slot. Containers cannot see it."""
        return self.path / "knowledge" / gpu

    def slot(self, gpu: str, name: str) -> Path:
        """Return the directory of a slot.

        Raises:
            Invalid: a slot or GPU cannot have this name.
        """
        if not _GPU_NAME.fullmatch(gpu):
            raise Invalid(f"{gpu!r} cannot be a GPU's UUID")
        if not _SLOT_NAME.fullmatch(name):
            raise Invalid(f"a slot's name is 1 to 63 of a-z, 0-9 and -, not {name!r}")
        return self.path / "gpus" / gpu / name

    def close(self) -> None:
        """Release the lock, so that another agent can use the directory."""
        os.close(self._lock)
