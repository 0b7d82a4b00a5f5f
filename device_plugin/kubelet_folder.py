"""The kubelet's folder of sockets: whether the kubelet's is a new one, whether ours is still there, who else is in it.

Looked at five times a second, which costs two calls of `stat` and a listing; watching it by inotify was refused: it
would need this look beside it, for what changes between two events, and a kubelet that starts is not waited for longer.
"""

import contextlib
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orion.device_plugin.slots import Resource

KUBELET = "kubelet.sock"
LOOK_SECONDS = 0.2

_YOUNG_SECONDS = 5.0
""" A socket so young may not be listened on yet. """

Identity = tuple[int, int, int]
""" Device, inode and when it was made: inodes are used again at once. """


@dataclass(frozen=True)
class Look:
    """What was there at one moment."""

    kubelet: Identity | None
    own: Identity | None
    others: frozenset[str]
    """ Other plugins of ours that serve the same resource, by what their sockets are named by: a rolling update. """
    gone: str
    """ What another plugin's sockets were named by that said that it registered last, and is no longer there. """


class KubeletFolder:
    """The folder, such as /var/lib/kubelet/device-plugins."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        # Two plugins are there at once in a rolling update, in containers of their own with equal process ids.
        self._token = secrets.token_hex(4)
        self._count = 0

    @property
    def kubelet(self) -> Path:
        """The kubelet's socket."""
        return self.path / KUBELET

    def fresh_socket(self, resource: Resource) -> Path:
        """Return a path for a socket that nobody has used."""
        self._count += 1
        return self.path / f"orion-{resource.role}-{self._token}-{self._count}.sock"

    def look(self, resource: Resource, own: Path) -> Look:
        """Look at everything; sockets that plugins of ours left behind when they were killed are removed."""
        latest = self._latest(resource)
        others = frozenset(self._others(resource))
        gone = "" if latest == self._token or latest in others else latest
        return Look(identity(self.kubelet), identity(own), others, gone)

    def say_latest(self, resource: Resource) -> None:
        """Let other plugins know that this one registers: also one that is gone before they have seen its socket."""
        fresh = self.path / f".orion-{resource.role}-{self._token}"
        try:
            fresh.write_text(self._token)
            fresh.replace(self._note(resource))
        except OSError:  # on a full disk they still see this one's socket come and go
            with contextlib.suppress(OSError):
                fresh.unlink()

    def _note(self, resource: Resource) -> Path:
        return self.path / f"orion-{resource.role}.latest"

    def _latest(self, resource: Resource) -> str:
        try:
            return self._note(resource).read_text()
        except (OSError, UnicodeDecodeError):
            return ""

    def _others(self, resource: Resource) -> Iterator[str]:
        ours = re.compile(rf"orion-{resource.role}-([0-9a-f]{{8}})-[0-9]+\.sock")
        try:
            found = [(name, ours.fullmatch(name)) for name in os.listdir(self.path)]
        except OSError:
            return
        for name, match in found:
            if match is not None and match[1] != self._token and self._lives(self.path / name):
                yield match[1]

    def _lives(self, path: Path) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as trial:
            try:
                trial.connect(str(path))
            except BlockingIOError:
                return True
            except ConnectionRefusedError:
                with contextlib.suppress(OSError):
                    if time.time() - path.lstat().st_mtime > _YOUNG_SECONDS:
                        path.unlink()
                return False
            except OSError:
                return False
        return True


def identity(path: Path) -> Identity | None:
    """Return what tells a socket from others at the same path, or None where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns) if stat.S_ISSOCK(found.st_mode) else None
