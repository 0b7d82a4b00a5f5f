"""The file in a slot's directory by which its processes know the slot's limit of memory before they have joined.

The grant page has the limit, but only a process that has joined has the page. A process that the agent has not answered
yet, or refuses, keeps to the file's limit by itself (`hook/src/agent/known_limit.h`). Containers cannot write the file.

What gives a slot to another container removes the file, without an agent. So an agent that takes a slot over from the
previous one does not make the file again: it may know only the grant of the container before, and end before it learns
more.
"""

import logging
from pathlib import Path

from orion.atomic_files import replace_file
from orion.hook import KNOWN_LIMIT

_log = logging.getLogger(__name__)


def write(directory: Path, limit_bytes: int, *, again: bool = True) -> None:
    """Write the limit; 0: there is none. A reader finds the file as it was before, or complete.

    Args:
        directory: of the slot.
        limit_bytes: the limit.
        again: make a file where there is none.
    """
    path = directory / KNOWN_LIMIT
    try:
        if not limit_bytes:
            path.unlink(missing_ok=True)
            return
        content = f"{limit_bytes}\n".encode()
        before = _read(path)
        if before == content or (before is None and not again):
            return
        replace_file(path, content, mode=0o644, alone=True)
    except OSError as error:
        _log.warning("slot: %s cannot be written, processes that do not join know no limit: %s", path, error)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
