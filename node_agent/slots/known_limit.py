"""The file in a slot's directory by which its processes know the slot's limit of memory before they have joined.

The grant page has the limit, but only a process that has joined has the page. A process that the agent has not answered
yet, or refuses, keeps to the file's limit by itself (`hook/src/agent/known_limit.h`). Containers cannot write the file.
"""

import contextlib
import logging
from pathlib import Path

from orion.atomic_files import replace_file
from orion.hook import KNOWN_LIMIT

_log = logging.getLogger(__name__)


def write(directory: Path, limit_bytes: int) -> None:
    """Write the limit; 0: there is none. A reader finds the file as it was before, or complete."""
    path = directory / KNOWN_LIMIT
    try:
        if not limit_bytes:
            path.unlink(missing_ok=True)
            return
        content = f"{limit_bytes}\n".encode()
        with contextlib.suppress(FileNotFoundError):
            if path.read_bytes() == content:
                return
        replace_file(path, content, mode=0o644, alone=True)
    except OSError as error:
        _log.warning("slot: %s cannot be written, processes that do not join know no limit: %s", path, error)
