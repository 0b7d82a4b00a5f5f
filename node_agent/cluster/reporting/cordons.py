"""Which GPUs people have closed to further pods, also before the API server has said so to this agent.

An agent that is started again goes by what the one before it heard: so it neither opens what is closed, nor closes for
a moment what is open. Where nothing is remembered, as after a boot of the node, all GPUs are closed until the first
list: that comes within a second where there is anybody who could send a pod. They open without it after a while, so
that an agent that may not list costs nobody the node.
"""

import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ValidationError

from orion.node_agent.advertising.advertising import FINE, Verdict
from orion.node_agent.state.state_file import boot_id

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 10.0


class Remembered(BaseModel):
    """The file."""

    boot: str
    """ Names the boot of the machine in which they were heard of. """
    closed: list[str]


class Cordons:
    """Those of one node's GPUs.

    Args:
        file: where they are remembered.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._closed = self._remembered()
        """ Names of GPUDevices; None: nobody has said yet. """
        self._since = time.monotonic()

    def hear(self, closed: Iterable[str]) -> None:
        """Take in the names of all devices that are closed."""
        names = frozenset(closed)
        if names != self._closed:
            self._closed = names
            self._remember(names)

    def verdict(self, name: str) -> Verdict:
        """Return whether pods may come to a GPU, by its device's name."""
        if self._closed is not None:
            message = f"spec.cordon of GPUDevice {name} is set, so no further pods come to it"
            return Verdict(cordoned=True, reason="Cordoned", message=message) if name in self._closed else FINE
        if time.monotonic() - self._since > _PATIENCE_SECONDS:
            return FINE
        message = f"the API server has not said yet whether spec.cordon of GPUDevice {name} is set"
        return Verdict(cordoned=True, reason="CordonUnknown", message=message)

    def _remembered(self) -> frozenset[str] | None:
        try:
            remembered = Remembered.model_validate_json(self._file.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            _log.warning("cordons: %s cannot be read: %s", self._file, str(error).splitlines()[0])
            return None
        return frozenset(remembered.closed) if remembered.boot == boot_id() else None

    def _remember(self, names: frozenset[str]) -> None:
        new = self._file.with_suffix(".new")
        try:
            new.write_text(Remembered(boot=boot_id(), closed=sorted(names)).model_dump_json())
            os.replace(new, self._file)
        except OSError as error:
            _log.warning("cordons: an agent that is started again would not know them: %s", error)
