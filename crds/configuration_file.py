"""The node's configuration file as agent and device plugin follow it: looked at again and again, and never watched.

It is a ConfigMap's, which the kubelet changes by symbolic links; whoever writes it by hand may do so in place. So the
text itself is compared: a file's time and size can stay the same when it changes. One that cannot be read, or has no
meaning, changes nothing and is said once: what was read last stands.
"""

import logging
from enum import Enum
from pathlib import Path

from orion.crds.errors import Unreadable
from orion.crds.node_configuration import NodeSettings, parse

_log = logging.getLogger(__name__)


class Change(Enum):
    """What a look at the file found to be new."""

    TAKEN = "taken"
    """ It says something else of this node. """
    REFUSED = "refused"
    """ It cannot be read, or has no meaning, and did not say so before. """


class ConfigurationFile:
    """What a file says of this node.

    Args:
        path: of the file; it may come later.
        node: the node's name; empty: only what the file says of all nodes counts.
    """

    def __init__(self, path: Path, node: str) -> None:
        self._path, self._node = path, node
        self._text: str | None = None  # None: it could not be read
        self.settings: NodeSettings | None = None
        """ As last read; None: it could never be. """
        self.problem = ""
        """ Why the file as it is cannot be read; empty where it can. """
        self.look()

    def look(self) -> Change | None:
        """Read the file; return what is new, if anything."""
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
            stands = "nothing is advertised yet" if before is None else "what was read last stands"
            _log.error("configuration: %s; %s", self.problem, stands)
            return Change.REFUSED
        if self.settings == before:
            return None
        _log.info("configuration: %s is taken in", self._path)
        return Change.TAKEN
