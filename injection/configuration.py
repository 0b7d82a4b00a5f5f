"""The settings of this node, which follow the configuration file that all programs of the node read."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from orion.crds.configuration_file import Change, ConfigurationFile
from orion.crds.node_configuration import NodeSettings
from orion.errors import Unreadable

_LOOK_S = 1.0
""" Pause between two looks at the configuration file. """

_log = logging.getLogger(__name__)


class Configuration:
    """The settings of this node, which follow the configuration file.

    Args:
        path: the path of the configuration file; None: the defaults apply.
        labels: the path of the file with the node's labels, which the node's agent writes.

    Raises:
        Unreadable: the file is invalid. At the start there are no earlier settings to keep.
    """

    def __init__(self, path: Path | None, labels: Path | None) -> None:
        self._file = ConfigurationFile(path, labels) if path is not None else None
        if self._file is not None and self._file.settings is None and not self._file.waits:
            raise Unreadable(self._file.problem)

    @property
    def settings(self) -> NodeSettings:
        """The settings now in force."""
        return (self._file.settings if self._file is not None else None) or NodeSettings()

    async def follow(self, changed: Callable[[Change], None]) -> None:
        """Poll the file for ever; report each change, and whether it was accepted, to `changed`."""
        while self._file is not None:
            await asyncio.sleep(_LOOK_S)
            change = self._file.look()
            if change is Change.TAKEN:
                settings = self.settings
                _log.info(
                    "configuration: device list strategy %s, preload %s, onNoAgent %s, driver root %s",
                    settings.device_list_strategy, settings.preload, settings.on_no_agent, settings.driver_root,
                )  # fmt: skip
            if change is not None:
                changed(change)
