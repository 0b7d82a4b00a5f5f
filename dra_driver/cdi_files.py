"""The CDI files of claims, in a folder that the container runtime reads whenever it makes a container.

The folder is in memory (/run), so a reboot empties it, and the driver makes the files again from its records. Each file
comes in one step: a runtime that finds a part of a file ignores the file, and refuses its containers.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orion.atomic_files import replace_file
from orion.errors import Exhausted

_PREFIX, _SUFFIX = "orion.gpu-claim_", ".json"


class CdiFiles:
    """The claims' files in one folder, such as /var/run/cdi.

    Args:
        folder: the folder; made if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, uid: str, specification: Mapping[str, Any]) -> None:
        """Write the file of a claim, unless it exists with this content.

        Raises:
            Exhausted: the file system rejects the file.
        """
        path, text = self._path(uid), json.dumps(specification)  # an indent would cost 0.3 ms
        try:
            if path.exists() and path.read_text() == text:
                return
            self._folder.mkdir(parents=True, exist_ok=True)
            replace_file(path, text.encode())
        except (OSError, UnicodeDecodeError) as error:
            raise Exhausted(f"the CDI file {path} cannot be written: {error}") from None

    def remove(self, uid: str) -> None:
        """Remove the file of a claim, if there is one.

        Raises:
            Exhausted: the file system rejects it.
        """
        try:
            self._path(uid).unlink(missing_ok=True)
        except OSError as error:
            raise Exhausted(f"the CDI file {self._path(uid)} cannot be removed: {error}") from None

    def uids(self) -> list[str]:
        """Return the claims that have a file."""
        found = self._folder.glob(f"{_PREFIX}*{_SUFFIX}")
        return sorted(path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for path in found)

    def _path(self, uid: str) -> Path:
        return self._folder / f"{_PREFIX}{uid}{_SUFFIX}"
