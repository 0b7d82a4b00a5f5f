"""Replaces a file in one step, so that a reader finds the old content or the new one, and never a part."""

import contextlib
import os
import secrets
from pathlib import Path

UNFINISHED = ".*.new"
""" The pattern of files that a killed process has left behind, beside the file that it wanted to replace. """


def replace_file(path: Path, content: bytes, *, mode: int | None = None, durable: bool = False) -> None:
    """Write a file, or replace it. Whoever has the old file open or mapped keeps it.

    Args:
        path: the file, in a folder that exists.
        content: its new content.
        mode: its permissions, whatever the umask; None: the umask decides.
        durable: wait until the content is on the disk, so that the file also survives a power failure.

    Raises:
        OSError: the file system rejects the file. The old one is still there.
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        with fresh.open("xb") as file:
            file.write(content)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(fresh, path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
