"""The node's configuration file. The agent and the device plugin reread it periodically instead of watching it.

The kubelet updates a mounted ConfigMap by replacing symbolic links, and a person may edit the file in place. So the
whole text is compared: a file's time and size can stay the same when its text changes. If the file is missing or
invalid, the last valid settings stay in force, and the problem is logged once.
"""

import logging
from enum import Enum
from pathlib import Path

from orion.crds.node_configuration import NodeSettings, parse
from orion.errors import Unreadable

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
        node: the node's name; empty: only the settings for all nodes apply.
    """

    def __init__(self, path: Path, node: str) -> None:
        self._path, self._node = path, node
        self._text: str | None = None  # None: it could not be read
        self.settings: NodeSettings | None = None
        """ The last valid settings; None: the file was never valid. """
        self.problem = ""
        """ Why the file cannot be read now; empty: it could be read. """
        self.look()

    def look(self) -> Change | None:
        """Read the file; return what changed, or None."""
        before, problem = self.settings, self.problem
        try:
            text = self._path.read_text()
            if text == self._text:
                return None
            self._text = text
            self.settings, self.problem = parse(text, str(self._path)).for_node(self._node), ""
        except Unreadable as error:
            self.problem = str(error)
        except (OSError, UnicodeDecodeError) as error:
            self._text = None
            self.problem = f"{self._path} cannot be read: {error}"
        if self.problem and self.problem != problem:
            effect = "nothing is advertised yet" if before is None else "the last valid settings stay in force"
            _log.error("configuration: %s; %s", self.problem, effect)
            return Change.REFUSED
        if self.settings == before:
            return None
        _log.info("configuration: %s is applied", self._path)
        return Change.TAKEN
