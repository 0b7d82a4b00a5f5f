"""The node's configuration file. The agent and the device plugin reread it periodically instead of watching it.

Settings of some nodes go by the nodes' labels. The agent of a cluster's node writes these into a second file, because
the device plugin has no access to the API server, and because both must start while the API server is away.

The kubelet updates a mounted ConfigMap by replacing symbolic links, and a person may edit the file in place. So the
whole text is compared: a file's time and size can stay the same when its text changes. If the file is missing or
invalid, the last valid settings stay in force, and the problem is logged once.
"""

import contextlib
import json
import logging
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from orion.atomic_files import replace_file
from orion.crds.node_configuration import NodeSettings, parse
from orion.errors import Unreadable

LABELS_FILE = "node-labels.json"
""" The name of the file with the node's labels, in the agent's folder. """

_log = logging.getLogger(__name__)


class Change(Enum):
    """What changed since the file was last read."""

    TAKEN = "taken"
    """ The settings of this node changed. """
    REFUSED = "refused"
    """ The file is missing or invalid, and this problem was not reported before. """


class ConfigurationFile:
    """The settings of this node in the file.

    Args:
        path: the file's path; the file need not exist yet.
        labels: the path of the file with the node's labels; None: the node has no labels.
    """

    def __init__(self, path: Path, labels: Path | None) -> None:
        self._path, self._labels = path, labels
        self._read: tuple[str, str] | None = None  # None: the file could not be read
        self.settings: NodeSettings | None = None
        """ The last valid settings; None: the file was never valid. """
        self.problem = ""
        """ Why the file cannot be read now; empty: it could be read. """
        self.needs_labels = False
        """ Whether the file has settings that go by labels. """
        self.look()

    @property
    def waits(self) -> bool:
        """Whether the settings of this node depend on labels that are not known yet."""
        return self.needs_labels and self._labels is not None and self._read is not None and not self._read[1]

    def look(self) -> Change | None:
        """Read the file; return what changed, or None."""
        before, problem = self.settings, self.problem
        try:
            read = self._path.read_text(), read_labels(self._labels)
            if read == self._read:
                return None
            self._read = read
            configuration = parse(read[0], str(self._path))
            self.needs_labels = bool(configuration.nodes)
            if self.waits:
                self.problem = f"{self._path} has settings for labels of nodes, and this node's are not known yet"
                return None
            self.settings, self.problem = configuration.for_labels(_parsed(read[1], self._labels)), ""
        except Unreadable as error:
            self.problem = str(error)
        except (OSError, ValueError) as error:
            self._read = None
            self.problem = f"{getattr(error, 'filename', None) or self._path} cannot be read: {error}"
        if self.problem and self.problem != problem:
            effect = "nothing is advertised yet" if before is None else "the last valid settings stay in force"
            _log.error("configuration: %s; %s", self.problem, effect)
            return Change.REFUSED
        if self.settings == before:
            return None
        _log.info("configuration: %s is applied", self._path)
        return Change.TAKEN


def read_labels(path: Path | None) -> str:
    """Return the text of the file with a node's labels; empty: there is none. Bytes that are no text are replaced."""
    if path is not None:
        with contextlib.suppress(FileNotFoundError):
            return path.read_text(errors="replace")
    return ""


def _parsed(text: str, path: Path | None) -> dict[str, str]:
    try:
        labels = json.loads(text or "{}")
    except ValueError as error:
        raise Unreadable(f"{path} cannot be read: {error}") from None
    if not isinstance(labels, dict):
        raise Unreadable(f"{path} cannot be read: it has no labels")
    return labels


def write_labels(path: Path, labels: Mapping[str, str]) -> None:
    """Write the file with a node's labels, unless it is the same already. A reader never finds a part of it.

    A file that cannot be read is replaced.

    Raises:
        OSError: the file cannot be written.
    """
    text = json.dumps(labels, sort_keys=True)
    with contextlib.suppress(OSError):
        if read_labels(path) == text:
            return
    replace_file(path, text.encode())
