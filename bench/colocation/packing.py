"""An output folder as one file, to be kept or sent: what the report is made from, and nothing that it makes.

The runs are compressed already. Equal folders give equal files: names are sorted, owners and times left out.
"""

import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from orion.bench.colocation import threads_verdict

SINGLE = ("scenario.yaml", "machine.json", threads_verdict.FILE)


class PackingError(ValueError):
    """Nothing can be packed, or unpacked; one sentence."""


def pack(folder: Path, file: Path) -> int:
    """Write the raw data of an output folder into one file, whole or not at all.

    Returns:
        The file's size in bytes.

    Raises:
        PackingError: The folder holds no runs.
        OSError: A file cannot be read or written.
    """
    if not (folder / "runs").is_dir():
        raise PackingError(f"{folder} holds no runs of a colocation (there is no folder {folder / 'runs'})")
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for path in _raw_data(folder):
            member = tarfile.TarInfo(str(path.relative_to(folder)))
            data = path.read_bytes()
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    packed = gzip.compress(held.getvalue(), mtime=0)
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(file.name + ".new")
    fresh.write_bytes(packed)
    os.replace(fresh, file)
    return len(packed)


def unpack(file: Path, folder: Path) -> None:
    """Put what `pack` wrote into a folder that is new or empty.

    Raises:
        PackingError: It is no such file, or the folder holds something.
    """
    try:
        with tarfile.open(file) as archive:
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise PackingError(f"{folder} is there already: give an empty folder with --output")
            archive.extractall(folder, filter="data")
    except (OSError, EOFError, tarfile.TarError) as error:
        raise PackingError(f"{file} is nothing that `orion bench pack` wrote: {error}") from error


def _raw_data(folder: Path) -> Iterator[Path]:
    yield from (path for name in SINGLE if (path := folder / name).is_file())
    yield from sorted((folder / "runs").rglob("*.json.gz"))
