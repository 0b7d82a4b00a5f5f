"""inotify(7): the kernel reports changes of folders and files. Python has no functions for it.

Three calls of libc are all that is needed. The packages that bind them bring more than that: asyncinotify its own
recursion, inotify_simple a blocking read of its own, watchfiles a thread and a compiled library.
"""

import ctypes
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntFlag

_libc = ctypes.CDLL(None, use_errno=True)
_HEAD = struct.Struct("iIII")
_BUFFER = 1 << 16


class Mask(IntFlag):
    """What is reported: `linux/inotify.h`."""

    CLOSE_WRITE = 0x8
    MOVED_FROM = 0x40
    MOVED_TO = 0x80
    CREATE = 0x100
    DELETE = 0x200
    DELETE_SELF = 0x400
    MOVE_SELF = 0x800
    OVERFLOW = 0x4000
    """ The kernel dropped events; this one belongs to no watch. """
    MASK_ADD = 0x2000_0000
    """ Add to what the watch of the same file reports already. """


@dataclass(frozen=True)
class Event:
    """One change; `name` is that of a folder's entry, empty if the watched file itself changed."""

    watch: int
    mask: int
    name: str


class Inotify:
    """One inotify instance; its descriptor becomes readable when there are events.

    Raises:
        OSError: this user has no instance left.
    """

    def __init__(self) -> None:
        self.descriptor = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify")

    def watch(self, path: str, mask: Mask) -> int:
        """Report changes of what a path names; return the watch's number, which is the same for the same file.

        Raises:
            OSError: there is no such file, or this user has no watch left.
        """
        return _checked(_libc.inotify_add_watch(self.descriptor, os.fsencode(path), ctypes.c_uint32(mask)), path)

    def end(self, watch: int) -> None:
        """End a watch, which may have ended already."""
        _libc.inotify_rm_watch(self.descriptor, watch)

    def read(self) -> Iterator[Event]:
        """Yield the events that there are."""
        try:
            data = os.read(self.descriptor, _BUFFER)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            watch, mask, _, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            yield Event(watch, mask, os.fsdecode(data[at : at + length].rstrip(b"\0")))
            at += length

    def close(self) -> None:
        """End all watches."""
        os.close(self.descriptor)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result
