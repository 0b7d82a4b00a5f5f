"""The header that every page begins with."""

import struct

from orion.hook import layout

_HEADER = struct.Struct("<QII48s")


def header(kind: layout.PageKind, gpu: str) -> bytes:
    """Return the header that every page begins with."""
    return _HEADER.pack(layout.PAGE_MAGIC, layout.LAYOUT_NEWEST, kind, gpu.encode("ascii")[:47])
