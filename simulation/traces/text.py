"""Reads plain and gzip files as numbered lines of text. A file is read once, and never as a whole into memory."""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from orion.errors import Unreadable

LONGEST_LINE = 1 << 20
_GZIP = b"\x1f\x8b"


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file. If its content is in gzip's format, decompress it; the file's name does not matter.

    Raises:
        Unreadable: the file cannot be opened, or reading in the block fails.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise Unreadable(f"{path} is no regular file, and is read more than once: write its content to a file")
        with path.open("rb") as raw:
            if raw.peek(2)[:2] != _GZIP:
                yield raw
                return
            with gzip.open(raw) as packed:
                yield cast("BinaryIO", packed)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Unreadable(f"{path} is a broken gzip file ({error}): fetch it again") from error
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror or error}; check the path") from error


def numbered(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that are not blank, with their numbers from 1. Bytes that are not UTF-8 become U+FFFD.

    Raises:
        Unreadable: the file cannot be read, or a line is longer than a trace's lines can be.
    """
    with opened(path) as file:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise Unreadable(f"{path}, line {number}: the line is longer than 1 MiB, so the file is no trace")
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if text := line.decode("utf-8", "replace").strip():
                yield number, text


def pieces(path: Path, size: int = LONGEST_LINE) -> Iterator[str]:
    """Yield a file's text in pieces of about `size` bytes.

    Raises:
        Unreadable: the file cannot be read.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    with opened(path) as file:
        while piece := file.read(size):
            yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)
