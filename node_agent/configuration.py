"""The node's configuration as the agent follows it: a file that is looked at each second.

By its identity, size and time, which change however it is replaced: written anew, renamed over, or by the switch of a
link as the kubelet updates a mounted ConfigMap. A file that cannot be read is said once and changes nothing.
"""

import logging
from pathlib import Path

from orion.crds.errors import Unreadable
from orion.crds.node_configuration import NodeSettings, read

_log = logging.getLogger(__name__)


class ConfigurationFile:
    """What a file says of this node.

    Args:
        path: of the file; it may come later.
        node: the node's name; empty: only what the file says of all nodes counts.
    """

    def __init__(self, path: Path, node: str) -> None:
        self._path, self._node = path, node
        self._seen: tuple[int, int, int, int] | None = None
        self.settings: NodeSettings | None = None
        """ As last read; None: it could never be. """
        self.problem = ""
        """ Why the file as it is cannot be read; empty where it can. """
        self.look()

    def look(self) -> bool:
        """Read the file if it has changed; return whether it says something else than before."""
        mark = self._mark()
        if mark is not None and mark == self._seen:
            return False
        before, problem = self.settings, self.problem
        try:
            self.settings = read(self._path, self._node)
            self.problem = ""
        except Unreadable as error:
            self.problem = str(error)
        self._seen = mark
        if self.problem and self.problem != problem:
            stands = "nothing is offered yet" if before is None else "what it said before stands"
            _log.error("configuration: %s; %s", self.problem, stands)
        elif self.settings != before:
            _log.info("configuration: %s is taken in", self._path)
        return self.settings != before

    def _mark(self) -> tuple[int, int, int, int] | None:
        """Return what changes with the file, or None where there is none."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
