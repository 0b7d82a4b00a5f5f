"""The node's settings, as the configuration file says them now.

The file is looked at again and again, not watched: it is a ConfigMap's, which the kubelet changes by symbolic links.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from orion.crds import node_configuration
from orion.crds.errors import Unreadable
from orion.crds.node_configuration import NodeSettings

_LOOK_SECONDS = 1.0

_log = logging.getLogger(__name__)


class Configuration:
    """The settings of this node.

    Args:
        path: of the file; None: the defaults hold.
        node: the node's name.

    Raises:
        Unreadable: the file has no meaning: at the start there is nothing that could stand instead.
    """

    def __init__(self, path: Path | None, node: str) -> None:
        self._path, self._node = path, node
        self._complaint = ""
        self.settings = NodeSettings() if path is None else node_configuration.read(path, node)

    async def follow(self, changed: Callable[[bool], None]) -> None:
        """Look at the file for ever; tell of each change whether it could be taken."""
        while self._path is not None:
            await asyncio.sleep(_LOOK_SECONDS)
            self._look(self._path, changed)

    def _look(self, path: Path, changed: Callable[[bool], None]) -> None:
        try:
            settings = node_configuration.read(path, self._node)
        except Unreadable as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _log.error("configuration: %s; what was read last stands", error)
                changed(False)
            return
        self._complaint = ""
        if settings != self.settings:
            self.settings = settings
            _log.info(
                "configuration: device list strategy %s, preload %s, onNoAgent %s, driver root %s",
                settings.device_list_strategy, settings.preload, settings.on_no_agent, settings.driver_root,
            )  # fmt: skip
            changed(True)
