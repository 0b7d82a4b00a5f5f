"""Ends a program once somebody has removed a folder of the node that its container mounts.

A mount keeps the removed folder, in which nobody can make a file, although the node may have a new folder at the same
path: there the kubelet looks for sockets, and container runtimes for mounts. Only the next start of the container
mounts the new one. A program without a container sees the new folder at once.
"""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from orion.errors import Unavailable

_LOOK_SECONDS = 2.0


async def until_removed(folders: Iterable[Path]) -> None:
    """Wait until a mounted folder was removed.

    Raises:
        Unavailable: it was.
    """
    # Of a folder that exists, a file system may say that it has no name, too.
    watched = [folder for folder in folders if not _was_removed(folder)]
    while True:
        for folder in watched:
            if _was_removed(folder):
                raise Unavailable(f"somebody has removed {folder} on the node: the next start mounts it again")
        await asyncio.sleep(_LOOK_SECONDS)


def _was_removed(folder: Path) -> bool:
    """Return whether a path leads to a folder that has no name any more. A path that leads nowhere is no mount."""
    try:
        return os.stat(folder).st_nlink == 0
    except OSError:
        return False
