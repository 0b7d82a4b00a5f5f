"""Replaces a file in one step, so that a reader finds the old content or the new one, and never a part.

This package is below all others and imports only the standard library.
"""

import contextlib
import os
import secrets
from pathlib import Path

UNFINISHED = ".*.new"
""" The pattern of files that a killed process has left behind, beside the file that it wanted to replace. """


def replace_file(
    path: Path, content: bytes, *, mode: int | None = None, durable: bool = False, alone: bool = False
) -> None:
    """Write a file, or replace it. Whoever has the old file open or mapped keeps it.

    Args:
        path: the file, in a folder that exists.
        content: its new content.
        mode: its permissions, whatever the umask; None: the umask decides.
        durable: wait until the content is on the disk, so that the file also survives a power failure.
        alone: nobody else writes the file at the same time. Then this also replaces what a killed process left behind.

    Raises:
        OSError: the file system rejects the file. The old one is still there.
    """
    fresh = path.with_name(f"{path.name}.new" if alone else f".{path.name}.{secrets.token_hex(4)}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if alone else os.O_EXCL)
    try:
        with open(os.open(fresh, flags, 0o666 if mode is None else mode), "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(fresh, path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
