"""The hook's files on the node: where containers' mounts come from.

Each version lies in a folder of its own, named by its content, `<version>-<hash>/`. Files come into it by rename and
are never overwritten: a library that is overwritten takes every process down that has it mapped. A container that
restarts gets the mounts of its first start, so a folder stays until the kubelet's checkpoint names it no more.
"""

import contextlib
import hashlib
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from orion import hook
from orion.device_plugin.errors import HostRefused

PRELOAD = "ld.so.preload"
SIMULATED_DRIVER = "simulated-libcuda.so.1"
""" Under no name that a loader looks for: every container sees the folder. """

_OLD_SECONDS = 3600.0
""" A folder that nobody names and no living plugin has touched for so long goes: longer than any rolling update's. """

_FOLDER = re.compile(r"[A-Za-z0-9.+_~!-]+-[0-9a-f]{12}")

_log = logging.getLogger(__name__)


class HookFolder:
    """The folder of all versions, such as /var/lib/orion/hook; the same path here as on the node.

    Raises:
        FileNotFoundError: the package has no hook.
    """

    def __init__(self, base: Path) -> None:
        library, driver = hook.library().read_bytes(), _simulated_driver()
        self._contents = {hook.HOOK: library, PRELOAD: f"{hook.CONTAINER_LIBRARY}\n".encode()}
        if driver:
            self._contents[SIMULATED_DRIVER] = driver
        digest = hashlib.sha256(b"".join(hashlib.sha256(each).digest() for each in self._contents.values())).hexdigest()
        self.base = base.absolute()
        self.current = self.base / f"{_version()}-{digest[:12]}"

    def install(self) -> None:
        """Make this version's files be there, whole.

        Raises:
            HostRefused: the node's disk does not take them, or no container could load them from there.
        """
        self._fill(self.current, check_content=True)
        if os.statvfs(self.current).f_flag & os.ST_NOEXEC:
            # A bind mount keeps it: every program would say that the library cannot be preloaded, and run unmanaged.
            raise HostRefused(
                f"{self.base} is mounted noexec, so no container can load the hook from there: let the node mount it "
                f"with exec (mount --bind {self.base} {self.base}, then mount -o remount,exec {self.base})"
            )

    def ensure(self) -> None:
        """The same, trusting files that are there in their full length: for the path of an allocation.

        Raises:
            HostRefused: the node's disk does not take them.
        """
        self._fill(self.current, check_content=False)

    def repair(self, sources: Iterable[Path]) -> None:
        """Make what a container mounts be there, of whatever version; a folder of another one gets this one's files.

        After a reboot a container runtime makes a mount's source that is missing as an empty folder.

        Raises:
            HostRefused: the node's disk does not take it.
        """
        for path in sources:
            folder = path if path.parent == self.base else path.parent
            if folder.parent == self.base and folder != self.current:
                self._fill(folder, check_content=False, replace=False)

    def touch(self) -> None:
        """Say that a plugin of this version lives."""
        with contextlib.suppress(OSError):
            os.utime(self.current)

    def sweep(self, named: Iterable[Path]) -> list[Path]:
        """Remove the folders of other versions that are old and not among `named`, or above it; return them.

        What the disk does not show now is there for the next time.
        """
        needed = {parent for path in named for parent in (path, *path.parents)}
        gone = []
        with contextlib.suppress(OSError):
            for folder in sorted(self.base.iterdir()):
                if folder != self.current and folder not in needed and self._is_old(folder):
                    shutil.rmtree(folder, ignore_errors=True)
                    gone.append(folder)
        return gone

    def _is_old(self, folder: Path) -> bool:
        try:
            age = time.time() - folder.lstat().st_mtime
        except OSError:
            return False
        return _FOLDER.fullmatch(folder.name) is not None and age > _OLD_SECONDS

    def _fill(self, folder: Path, *, check_content: bool, replace: bool = True) -> None:
        try:
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o755)
            for name, content in self._contents.items():
                if not _is_there(folder / name, content if replace else None, check_content):
                    _put(folder / name, content)
        except OSError as error:
            raise HostRefused(f"the hook cannot be put into {folder}: {error}") from None


def _is_there(path: Path, content: bytes | None, check_content: bool) -> bool:
    """Return whether a file is there, with this length or content; with None, with any."""
    try:
        found = path.lstat()
        if not path.is_file():
            return False
        if content is None:
            return found.st_size > 0
        return found.st_size == len(content) and (not check_content or path.read_bytes() == content)
    except FileNotFoundError:
        return False


def _put(path: Path, content: bytes) -> None:
    """Put a new file in the place of whatever is there; running processes keep the one that they have mapped."""
    if path.is_dir() and not path.is_symlink():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # another start was first
            path.rmdir()  # by a container runtime, empty
            _log.warning("hook: %s was an empty folder, made by a container runtime; it is a file again", path)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with fresh.open("xb") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644 if path.name == PRELOAD else 0o755)
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise


def _simulated_driver() -> bytes:
    try:
        return hook.simulated_driver().read_bytes()
    except FileNotFoundError:
        return b""


def _version() -> str:
    try:
        return metadata.version("orion-gpu")
    except metadata.PackageNotFoundError:
        return "0-checkout"
