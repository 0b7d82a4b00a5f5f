"""Writes files that appear under their names only when they are complete, even after a full disk or Ctrl-C."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from orion.errors import Conflict


def write(path: Path, texts: Iterable[str]) -> None:
    """Write texts one after the other, in UTF-8. The file replaces an earlier file of that name.

    Raises:
        Conflict: the file cannot be written; an earlier file of that name stays unchanged.
    """
    target = path.resolve()  # if the path is a link, replace the file to which it leads
    if target.exists() and not target.is_file():
        raise Conflict(f"{path} cannot be written: it is no regular file; choose another file")
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        try:
            with fresh.open("w", encoding="utf-8", newline="") as file:
                file.writelines(texts)
            fresh.replace(target)
        except OSError as error:
            reason = error.strerror or str(error)
            raise Conflict(f"{path} cannot be written: {reason}; free space or choose another file") from error
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise
