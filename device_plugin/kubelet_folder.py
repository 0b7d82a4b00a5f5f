"""Polls the kubelet's folder of sockets for a new kubelet, for our own socket, and for other instances of this plugin.

The plugin polls five times a second. A poll costs two `stat` calls and a listing. inotify was rejected: the plugin
would still have to poll, for example because no event reports that a plugin was killed and left its socket. A poll
alone notices a new kubelet soon enough.
"""

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orion.atomic_files import replace_file
from orion.injection.slots import Resource
from orion.injection.unix_sockets import Identity, identity, is_abandoned, is_served

KUBELET = "kubelet.sock"
POLL_SECONDS = 0.2

_YOUNG_SECONDS = 5.0
""" A socket that is younger than this may have no listener yet. """


@dataclass(frozen=True)
class FolderState:
    """The state of the folder at one moment."""

    kubelet: Identity | None
    own: Identity | None
    others: frozenset[str]
    """ Tokens (random names) of the other instances that serve the same resource during a rolling update. """
    gone: str
    """ Token of the instance that registered last, if it is another instance and no longer runs; else empty. """


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

    def state(self, resource: Resource, own: Path) -> FolderState:
        """Return the state of the folder; remove sockets that killed instances of this plugin left behind."""
        latest = self._latest(resource)
        others = frozenset(self._others(resource))
        gone = "" if latest == self._token or latest in others else latest
        return FolderState(identity(self.kubelet), identity(own), others, gone)

    def record_as_latest(self, resource: Resource) -> None:
        """Record in a file that this plugin is the latest to register.

        Other plugins read the file, because they may never see this plugin's socket.
        """
        # The disk may be full; other plugins can then only watch this plugin's socket.
        with contextlib.suppress(OSError):
            replace_file(self._note(resource), self._token.encode())

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
        if is_served(path):
            return True
        if is_abandoned(path):
            with contextlib.suppress(OSError):
                if time.time() - path.lstat().st_mtime > _YOUNG_SECONDS:
                    path.unlink()
        return False
