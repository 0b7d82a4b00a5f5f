"""What the clients of a slot learnt about kernels, kept for those that come after them.

Clients tell what they measured (`hook/include/orion/knowledge.h`); what is plausible is merged, the newest wins, and a
client that joins is given all of it as a sealed table, so a process that is started again begins warm. Administrators
add a profile's rows. All of it outlives the agent in a file of the slot's own, outside what containers see.

A client can send wrong figures to later users of its slot: they take it as an estimate and measure it at their
first launches, so it costs them and hp some milliseconds once. For that price a slot keeps what it knows when it is
made ready for another container, and when it is closed and opened again: most often it is the same program, once more.

Refused: knowledge of a whole GPU (one tenant could then mislead the others, and learn what kernels they run).
"""

import contextlib
import logging
import os
import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from orion.hook import identity, join, layout
from orion.node_agent.pages import descriptors

_log = logging.getLogger(__name__)

_HEADER = struct.Struct("<QII")
_ENTRY = struct.Struct("<QIHBB")
_LONGEST_100NS = 600_000_000
""" A minute; what takes longer was not measured right. """
_MOST_SMS = 1024
_SAVE_SECONDS = 30.0
_TABLE_SECONDS = 1.0
""" A table given to clients may be older than what is known, by this much. """

GPU_ENTRIES = 1 << 16
""" Of all slots of a GPU together: some 15 MB. """


class Row(Protocol):
    """What a profile says of one kernel; `orion.node_agent.api.profiles` makes them of a GPUProfile."""

    @property
    def identity(self) -> int:
        """The plain one of `orion.hook.identity`."""

    @property
    def duration_ns(self) -> int:
        """Of one launch; 0: unknown."""

    @property
    def sms(self) -> int:
        """SMs that it fills; 0: unknown."""

    @property
    def kernel_class(self) -> int:
        """A `layout.KernelClass`."""


def entry_of(row: Row) -> bytes:
    """Return a profile's row as clients read it.

    Raises:
        ValueError: a number that no kernel has.
    """
    if not identity.is_reported(row.identity):
        raise ValueError(f"{row.identity:#018x} is no identity of a kernel")
    if row.duration_ns < 0 or row.sms < 0:
        raise ValueError(f"kernel {row.identity:016x} cannot take {row.duration_ns} ns on {row.sms} SMs")
    duration = min(_LONGEST_100NS, -(-row.duration_ns // 100))
    sms = min(_MOST_SMS, row.sms)
    return _ENTRY.pack(row.identity, duration, sms, layout.KernelClass(row.kernel_class), join.KNOWN_PROFILE)


def sweep(folder: Path, most: int) -> None:
    """Remove all but the newest files of a GPU's slots; those of slots that are gone stay for whoever opens them again.

    Args:
        folder: holds one file a slot; need not be there.
        most: files to keep.
    """
    with contextlib.suppress(OSError):
        files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in files[most:]:
            path.unlink()


def _is_plausible(key: int, duration_100ns: int, sms: int, kernel_class: int, flags: int) -> bool:
    if not identity.is_reported(key) or flags != 0 or kernel_class > max(layout.KernelClass):
        return False
    return 0 < duration_100ns <= _LONGEST_100NS and sms <= _MOST_SMS


class Knowledge:
    """What one slot knows.

    Args:
        path: its file; need not be there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._learnt: dict[int, bytes] = {}
        """ Entries by identity, the newest at the end. """
        self._profile: dict[int, bytes] = {}
        self._table = -1
        self._table_stale = True
        self._table_made = 0.0
        self._unsaved_since: float | None = None
        self._load()

    def __len__(self) -> int:
        """Return how many entries there are."""
        return len(self._learnt) + len(self._profile)

    @property
    def profiled(self) -> int:
        """How many of them are a profile's."""
        return len(self._profile)

    @property
    def learnt(self) -> int:
        """How many of them clients measured."""
        return len(self._learnt)

    def merge(self, message: join.Learnt, limit: int = join.KNOWLEDGE_ENTRIES) -> int:
        """Take what a client learnt, as far as it is plausible.

        Args:
            message: from a client; anything may stand in it.
            limit: entries that this slot may keep; the oldest go.

        Returns:
            How many entries were taken.
        """
        count = min(message.count, join.LEARNT_ENTRIES)
        reported = bytes(message.entries)[: count * _ENTRY.size]
        taken = 0
        for position, fields in enumerate(_ENTRY.iter_unpack(reported)):
            if _is_plausible(*fields):
                self._learnt.pop(fields[0], None)
                self._learnt[fields[0]] = reported[position * _ENTRY.size : (position + 1) * _ENTRY.size]
                taken += 1
        self._keep_within(limit)
        if taken:
            self._change()
        return taken

    def set_profile(self, rows: Iterable[Row]) -> None:
        """Replace the administrators' rows; of rows for one identity the first counts, what is too much is left out.

        Raises:
            ValueError: a number that no kernel has.
        """
        entries: dict[int, bytes] = {}
        for row in rows:
            entries.setdefault(row.identity, entry_of(row))
            if len(entries) == join.KNOWLEDGE_ENTRIES:
                break
        self._profile = entries
        self._keep_within(join.KNOWLEDGE_ENTRIES)
        self._change()
        self._table_made = 0.0

    def table(self) -> int:
        """Return the descriptor of a sealed table of everything, which stays this object's; -1: nothing ever was known.

        Raises:
            OSError: no descriptors or no memory are left.
        """
        now = time.monotonic()
        known = len(self) > 0 or self._table >= 0  # an empty table takes a profile away
        if known and self._table_stale and (self._table < 0 or now - self._table_made > _TABLE_SECONDS):
            made = descriptors.sealed_file("orion-knowledge", self._bytes())
            self._drop_table()
            self._table, self._table_stale, self._table_made = made, False, now
        return self._table

    def save(self, wait: bool = True) -> None:
        """Write what is new to the file; ``wait``: only if it has been new for a while."""
        if self._unsaved_since is None or (wait and time.monotonic() - self._unsaved_since < _SAVE_SECONDS):
            return
        self._unsaved_since = None
        new = self._path.with_name(self._path.name + ".new")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(self._bytes())
            os.replace(new, self._path)
        except OSError as error:
            _log.warning("knowledge: %s cannot be written, clients after a restart begin cold: %s", self._path, error)

    def close(self) -> None:
        """Save, and give back the descriptor."""
        self.save(wait=False)
        self._drop_table()

    def _change(self) -> None:
        self._table_stale = True
        if self._unsaved_since is None:
            self._unsaved_since = time.monotonic()

    def _keep_within(self, limit: int) -> None:
        while self._learnt and len(self) > limit:
            del self._learnt[next(iter(self._learnt))]

    def _drop_table(self) -> None:
        if self._table >= 0:
            os.close(self._table)
            self._table = -1

    def _bytes(self) -> bytes:
        """The table. Rows come first: what was learnt under the very same identity is taken after them."""
        head = _HEADER.pack(join.KNOWLEDGE_MAGIC, join.KNOWLEDGE_LAYOUT, len(self))
        return b"".join((head, *self._profile.values(), *self._learnt.values()))

    def _load(self) -> None:
        try:
            with open(self._path, "rb") as file:
                saved = file.read(_HEADER.size + join.KNOWLEDGE_ENTRIES * _ENTRY.size)
        except OSError:
            return
        if len(saved) < _HEADER.size:
            return
        magic, version, count = _HEADER.unpack_from(saved)
        entries = saved[_HEADER.size :]
        if (magic, version, count * _ENTRY.size) != (join.KNOWLEDGE_MAGIC, join.KNOWLEDGE_LAYOUT, len(entries)):
            _log.warning("knowledge: %s cannot be used, its slot begins cold", self._path)
            return
        for position, (key, *_, flags) in enumerate(_ENTRY.iter_unpack(entries)):
            kept = self._profile if flags & join.KNOWN_PROFILE else self._learnt
            kept[key] = entries[position * _ENTRY.size : (position + 1) * _ENTRY.size]
