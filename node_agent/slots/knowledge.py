"""What the clients of a slot learnt about kernels, kept for the slot's later clients.

Clients report what they measured (`hook/include/orion/knowledge.h`). The key of an entry is the kernel's identity, a
hash of its name, grid, block and shared memory (`orion.hook.identity`). Plausible entries are merged; the newest wins.
A client that joins gets all entries as a sealed table, so a restarted process starts with known durations.
Administrators add the rows of a profile. A file of the slot, which containers cannot see, keeps all entries when the
agent ends.

A client can report wrong figures to later clients of its slot. Later clients use the figures only as an estimate and
measure at their first launches, so a wrong figure costs them and hp some milliseconds once. This risk is accepted: a
slot keeps its table when another container gets the slot, and when the slot is closed and opened again, because the
next container often runs the same program.

A table for a whole GPU would be worse: a tenant could mislead other tenants, and learn which kernels they run.
"""

import contextlib
import logging
import os
import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from orion.atomic_files import replace_file
from orion.hook import identity, join, layout
from orion.node_agent.pages import descriptors

_log = logging.getLogger(__name__)

_HEADER = struct.Struct("<QII")
_ENTRY = struct.Struct("<QIHBB")
_LONGEST_100NS = 600_000_000
""" One minute; a longer duration was measured wrong. """
_MOST_SMS = 1024
_SAVE_SECONDS = 30.0
_TABLE_SECONDS = 1.0
""" A joining client gets a table that is at most this old; an older table is made again if entries were added. """

GPU_ENTRIES = 1 << 16
""" The maximum number of entries of all slots of a GPU together; they need about 15 MB. """


class Row(Protocol):
    """A profile's row for one kernel; `orion.node_agent.api.profiles` makes rows from a GPUProfile."""

    @property
    def identity(self) -> int:
        """The kernel's plain identity: without a hash of its code, which a profile does not have."""

    @property
    def duration_ns(self) -> int:
        """Duration of one launch; 0: unknown."""

    @property
    def sms(self) -> int:
        """Number of SMs that the kernel fills; 0: unknown."""

    @property
    def kernel_class(self) -> int:
        """A `layout.KernelClass`."""


def entry_of(row: Row) -> bytes:
    """Return a profile's row in the format that clients read.

    Raises:
        ValueError: a value that no kernel can have.
    """
    if not identity.is_reported(row.identity):
        raise ValueError(f"{row.identity:#018x} is no identity of a kernel")
    if row.duration_ns < 0 or row.sms < 0:
        raise ValueError(f"kernel {row.identity:016x} cannot take {row.duration_ns} ns on {row.sms} SMs")
    duration = min(_LONGEST_100NS, -(-row.duration_ns // 100))
    sms = min(_MOST_SMS, row.sms)
    return _ENTRY.pack(row.identity, duration, sms, layout.KernelClass(row.kernel_class), join.KNOWN_PROFILE)


def sweep(folder: Path, most: int) -> None:
    """Remove all but the newest files of a GPU's slots; files of closed slots stay in case the slot is opened again.

    Args:
        folder: has one file for each slot; need not exist.
        most: how many files to keep.
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
    """The knowledge table of one slot.

    Args:
        path: the slot's file; need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._learnt: dict[int, bytes] = {}
        """ Entries by identity; the newest is last. """
        self._profile: dict[int, bytes] = {}
        self._table = -1
        self._table_stale = True
        self._table_made = 0.0
        self._unsaved_since: float | None = None
        self._load()

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._learnt) + len(self._profile)

    @property
    def profiled(self) -> int:
        """The number of entries from a profile."""
        return len(self._profile)

    @property
    def learnt(self) -> int:
        """The number of entries that clients measured."""
        return len(self._learnt)

    def merge(self, message: join.Learnt, limit: int = join.KNOWLEDGE_ENTRIES) -> int:
        """Merge the plausible entries of a client's report.

        Args:
            message: from a client; its content can be anything.
            limit: maximum number of entries of this slot; the oldest are removed.

        Returns:
            The number of entries that were merged.
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
        """Replace the rows of the profile. Of rows with one identity the first applies; rows beyond the limit do not.

        Raises:
            ValueError: a value that no kernel can have.
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
        """Return the descriptor of a sealed table with all entries; -1: no entry ever existed. This object owns it.

        Raises:
            OSError: no descriptor or no memory is left.
        """
        now = time.monotonic()
        known = len(self) > 0 or self._table >= 0  # an empty table removes a profile from the clients
        if known and self._table_stale and (self._table < 0 or now - self._table_made > _TABLE_SECONDS):
            made = descriptors.sealed_file("orion-knowledge", self._bytes())
            self._drop_table()
            self._table, self._table_stale, self._table_made = made, False, now
        return self._table

    def save(self, wait: bool = True) -> None:
        """Write unsaved entries to the file; ``wait``: only if they have been unsaved for a while."""
        if self._unsaved_since is None or (wait and time.monotonic() - self._unsaved_since < _SAVE_SECONDS):
            return
        self._unsaved_since = None
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path, self._bytes(), mode=0o600, alone=True)
        except OSError as error:
            _log.warning(
                "knowledge: %s cannot be written, clients after a restart start without it: %s", self._path, error
            )

    def close(self) -> None:
        """Save, and close the descriptor."""
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
        """Return the table. A profile's rows come first, because a later entry with the same identity replaces them."""
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
            _log.warning("knowledge: %s cannot be used, its slot starts without it", self._path)
            return
        for position, (key, *_, flags) in enumerate(_ENTRY.iter_unpack(entries)):
            kept = self._profile if flags & join.KNOWN_PROFILE else self._learnt
            kept[key] = entries[position * _ENTRY.size : (position + 1) * _ENTRY.size]
