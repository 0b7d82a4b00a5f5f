"""Packs the raw data of an output folder into one file; the report is left out, since it can be made again.

The run files are already compressed. Equal folders give equal files: names are sorted, owners and times left out.
"""

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from orion.atomic_files import replace_file
from orion.bench.colocation import threads_verdict
from orion.errors import Conflict, NotFound, Unreadable

SINGLE = ("scenario.yaml", "machine.json", "batch_times.json", threads_verdict.FILE)


def pack(folder: Path, file: Path) -> int:
    """Write the raw data of an output folder into one file, atomically.

    Returns:
        The file's size in bytes.

    Raises:
        NotFound: The folder has no runs.
        OSError: A file cannot be read or written.
    """
    if not (folder / "runs").is_dir():
        raise NotFound(f"{folder} holds no runs of a colocation (there is no folder {folder / 'runs'})")
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for path in _raw_data(folder):
            member = tarfile.TarInfo(str(path.relative_to(folder)))
            data = path.read_bytes()
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    packed = gzip.compress(held.getvalue(), mtime=0)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, packed, alone=True)
    return len(packed)


def unpack(file: Path, folder: Path) -> None:
    """Unpack a file that `pack` wrote into a new or empty folder.

    Raises:
        Unreadable: The file is not from `pack`.
        Conflict: The folder is not empty, or cannot be written.
    """
    try:
        with tarfile.open(file) as archive:
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise Conflict(f"{folder} exists already: give an empty folder with --output")
            archive.extractall(folder, filter="data")
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        if isinstance(error, OSError) and error.errno is not None and str(error.filename) != str(file):
            raise Conflict(f"{folder} cannot be written: {error.strerror}; give another with --output") from error
        reason = str(error).partition("\n")[0].rstrip(":")  # tarfile adds a line for each compression that it tried
        raise Unreadable(f"{file} is not a file that `orion bench pack` wrote: {reason}") from error


def _raw_data(folder: Path) -> Iterator[Path]:
    yield from (path for name in SINGLE if (path := folder / name).is_file())
    yield from sorted((folder / "runs").rglob("*.json.gz"))
