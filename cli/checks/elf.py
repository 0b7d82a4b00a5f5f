"""Reads which versions of the C library a shared library needs.

The section of type GNU_verneed lists, for every needed library, the symbol versions that the library must have.
Reading it takes a dozen lines, so there is no dependency. Rejected: scanning the file for strings. The hook looks up
some versions by name at run time, and those are not required.
"""

import struct
from pathlib import Path

_VERNEED = 0x6FFFFFFE  # SHT_GNU_verneed


def _sections(data: bytes) -> list[tuple[int, int, int, int]]:
    """Return (type, offset, link, info) of each section of a 64-bit little-endian file."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    table, size, count = struct.unpack_from("<Q", data, 0x28)[0], *struct.unpack_from("<HH", data, 0x3A)
    found = []
    for index in range(count):
        _, kind, _, _, offset, _, link, info = struct.unpack_from("<IIQQQQII", data, table + index * size)
        found.append((kind, offset, link, info))
    return found


def needed_versions(path: Path) -> set[str]:
    """Return the symbol versions that a library needs of others, such as ``GLIBC_2.17``.

    Raises:
        ValueError: the file is not a library that this can read.
    """
    data = path.read_bytes()
    versions: set[str] = set()
    try:
        sections = _sections(data)
        for kind, offset, link, count in sections:
            if kind != _VERNEED:
                continue
            names = sections[link][1]
            for _ in range(count):
                _, entries, _, first, following = struct.unpack_from("<HHIII", data, offset)
                entry = offset + first
                for _ in range(entries):
                    _, _, _, name, next_entry = struct.unpack_from("<IHHII", data, entry)
                    versions.add(data[names + name : data.index(b"\0", names + name)].decode())
                    entry += next_entry
                offset += following
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(f"{path} is damaged") from error
    return versions


def newest_glibc(versions: set[str]) -> tuple[int, ...]:
    """Return the newest GLIBC version among symbol versions, such as (2, 17); (0,) when none is needed."""
    numbers = [tuple(map(int, v[6:].split("."))) for v in versions if v.startswith("GLIBC_") and v[6:7].isdigit()]
    return max(numbers, default=(0,))
