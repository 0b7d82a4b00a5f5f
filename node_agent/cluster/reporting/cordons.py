"""The GPUs that people have cordoned. A file keeps their names for an agent that starts without the API server.

No new pod can get a closed GPU. A restarted agent closes the GPUs whose names the previous agent saved. So it opens no
cordoned GPU, and closes no other. If no names are saved, as after a boot, all GPUs are closed until the API server has
sent the first list. The list arrives within a second if an API server runs. Without the list, the agent opens the GPUs
after a while, because an agent that has no permission to list must not block the node.
"""

import logging
import time
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ValidationError

from orion.atomic_files import replace_file
from orion.node_agent.advertising.advertising import FINE, Verdict
from orion.node_agent.state.state_file import boot_id

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 10.0


class Remembered(BaseModel):
    """The content of the file."""

    boot: str
    """ Identifies the machine's boot during which the names were received. """
    closed: list[str]


class Cordons:
    """The cordons of one node's GPUs.

    Args:
        file: where the names of the cordoned GPUs are saved.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._closed = self._remembered()
        """ Names of GPUDevices; None: not received yet. """
        self._since = time.monotonic()

    def set(self, closed: Iterable[str]) -> None:
        """Set the names of all cordoned devices."""
        names = frozenset(closed)
        if names != self._closed:
            self._closed = names
            self._remember(names)

    def verdict(self, name: str) -> Verdict:
        """Return whether a GPU is closed to new pods, by the name of its GPUDevice."""
        if self._closed is not None:
            message = f"spec.cordon of GPUDevice {name} is set, so no new pods get slots of it"
            return Verdict(cordoned=True, reason="Cordoned", message=message) if name in self._closed else FINE
        if time.monotonic() - self._since > _PATIENCE_SECONDS:
            return FINE
        message = f"the API server has not reported yet whether spec.cordon of GPUDevice {name} is set"
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
        try:
            text = Remembered(boot=boot_id(), closed=sorted(names)).model_dump_json()
            replace_file(self._file, text.encode(), alone=True)
        except OSError as error:
            _log.warning("cordons: the names cannot be saved, so a restarted agent would not know them: %s", error)
