"""Installs the hook's files on the node, so that containers can mount them, and removes unused files.

Each version has its own folder, named after its content: `<version>-<hash>/`. A rename puts each file into the
folder. No file is overwritten, because that would kill every process that has mapped the file. A container that
restarts gets the mounts of its first start, so a folder stays as long as a container may mount it.
"""

import contextlib
import hashlib
import logging
import os
import re
import shutil
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from orion import hook
from orion.atomic_files import replace_file
from orion.errors import Exhausted

PRELOAD = "ld.so.preload"
AWAIT_AGENT = hook.AWAIT_AGENT
""" The program that the container runtime runs before a container that must not start without an agent. """
SIMULATED_DRIVER = "simulated-libcuda.so.1"
""" No loader looks for this name, so containers that see the folder do not load the file by accident. """

_OLD_SECONDS = 3600.0
""" Age at which an unused folder is removed: longer than any rolling update, during which two versions are in use. """

_FOLDER = re.compile(r"[A-Za-z0-9.+_~!-]+-[0-9a-f]{12}")

_Identity = tuple[int, int, int, int, int]
""" A file's device, inode, size, and the times of its last changes; a file that is edited in place gets another. """

_log = logging.getLogger(__name__)


class HookFolder:
    """The parent folder of all versions, such as /var/lib/orion/hook. The path is the same here as on the node.

    Raises:
        FileNotFoundError: the package has no hook.
    """

    def __init__(self, base: Path) -> None:
        library, driver = hook.library().read_bytes(), _simulated_driver()
        self._contents = {hook.HOOK: library, PRELOAD: f"{hook.CONTAINER_LIBRARY}\n".encode()}
        self._contents[AWAIT_AGENT] = hook.await_agent().read_bytes()
        if driver:
            self._contents[SIMULATED_DRIVER] = driver
        digest = hashlib.sha256(b"".join(hashlib.sha256(each).digest() for each in self._contents.values())).hexdigest()
        self.base = base.absolute()
        self._checked: dict[Path, _Identity] = {}
        """ The files whose content was found to be right, so that it is read again only after a change. """
        self.current = self.base / f"{_version()}-{digest[:12]}"

    def install(self) -> None:
        """Install this version's files, and check their content.

        Raises:
            Exhausted: the node's disk rejects the files, or containers could not load them from there.
        """
        self._fill(self.current)
        if os.statvfs(self.current).f_flag & os.ST_NOEXEC:
            # A bind mount inherits noexec: every program would report that the library cannot be preloaded, and run
            # unmanaged.
            raise Exhausted(
                f"{self.base} is mounted noexec, so no container can load the hook from there: mount it with exec "
                f"on the node (mount --bind {self.base} {self.base}, then mount -o remount,exec {self.base})"
            )

    def repair(self, sources: Iterable[Path]) -> None:
        """Restore the files that a container mounts. Incomplete folders of other versions get this version's files.

        After a reboot, a container runtime creates a missing source of a mount as an empty folder.

        Raises:
            Exhausted: the node's disk rejects the files.
        """
        for path in sources:
            folder = path if path.parent == self.base else path.parent
            if folder.parent == self.base and folder != self.current:
                self._fill(folder, replace=False)

    def touch(self) -> None:
        """Record that a program of this version runs."""
        with contextlib.suppress(OSError):
            os.utime(self.current)

    def sweep(self, named: Iterable[Path]) -> list[Path]:
        """Remove old folders of other versions, and return them. Folders that a path in `named` needs are kept.

        An error of the file system ends this sweep; the next sweep continues.
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

    def _fill(self, folder: Path, *, replace: bool = True) -> None:
        try:
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o755)
            for name, content in self._contents.items():
                if not self._is_there(folder / name, content if replace else None):
                    _put(folder / name, content)
        except OSError as error:
            raise Exhausted(f"the hook cannot be put into {folder}: {error}") from None

    def _is_there(self, path: Path, content: bytes | None) -> bool:
        """Return whether a file exists and has this content; if `content` is None, whether it is not empty."""
        try:
            found = path.lstat()
            identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            if content is not None and self._checked.get(path) == identity:
                return True
            if not path.is_file():
                return False
            if content is None:
                return found.st_size > 0
            if found.st_size != len(content) or path.read_bytes() != content:
                return False
        except FileNotFoundError:
            return False
        self._checked[path] = identity
        return True


def _put(path: Path, content: bytes) -> None:
    """Replace whatever is at the path by a new file; running processes keep the file that they have mapped."""
    if path.is_dir() and not path.is_symlink():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # a concurrent start has replaced it
            path.rmdir()  # empty: a container runtime made it
            _log.warning("hook: %s was an empty folder that a container runtime made; it is restored", path)
    replace_file(path, content, mode=0o644 if path.name == PRELOAD else 0o755, durable=True)


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
