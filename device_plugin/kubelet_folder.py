"""Watches the kubelet's folder of sockets: a new kubelet, our own socket, and other plugins of ours.

The plugin polls five times a second, at the cost of two `stat` calls and a listing. inotify was rejected: it would need
the same poll for changes between two events, and a poll already notices a new kubelet soon enough.
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
""" A younger socket may have no listener yet. """

Identity = tuple[int, int, int]
""" Device, inode and time of creation; the time is needed because file systems reuse inodes at once. """


@dataclass(frozen=True)
class Look:
    """The state of the folder at one moment."""

    kubelet: Identity | None
    own: Identity | None
    others: frozenset[str]
    """ Tokens of other plugins of ours that serve the same resource, during a rolling update. """
    gone: str
    """ Token of the plugin that registered last, if it is another one and no longer runs; else empty. """


class KubeletFolder:
    """The folder, such as /var/lib/kubelet/device-plugins."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        # A rolling update runs two plugins at once. Each is in its own container, so their process IDs can be equal.
        self._token = secrets.token_hex(4)
        self._count = 0

    @property
    def kubelet(self) -> Path:
        """The kubelet's socket."""
        return self.path / KUBELET

    def fresh_socket(self, resource: Resource) -> Path:
        """Return a new path for a socket."""
        self._count += 1
        return self.path / f"orion-{resource.role}-{self._token}-{self._count}.sock"

    def look(self, resource: Resource, own: Path) -> Look:
        """Look at the folder; remove sockets that killed plugins of ours left behind."""
        latest = self._latest(resource)
        others = frozenset(self._others(resource))
        gone = "" if latest == self._token or latest in others else latest
        return Look(identity(self.kubelet), identity(own), others, gone)

    def say_latest(self, resource: Resource) -> None:
        """Record for other plugins that this one registers, also for those that never see this one's socket."""
        fresh = self.path / f".orion-{resource.role}-{self._token}"
        try:
            fresh.write_text(self._token)
            fresh.replace(self._note(resource))
        except OSError:  # on a full disk other plugins still see this one's socket appear and disappear
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
    """Return what distinguishes a socket from earlier ones at the same path; None if there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns) if stat.S_ISSOCK(found.st_mode) else None
