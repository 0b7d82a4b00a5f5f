"""The driver's checkpoint: what each prepared claim was given, in one file for each claim.

The kubelet remembers which claims are prepared, and the driver must still know what for, after a restart and after a
reboot. A record holds the CDI specification itself, so that the driver can make the claim's CDI file again while no
agent runs, and a container that restarts gets the mounts of its first start.

A record is replaced by a rename, after its content is on the disk. Two drivers run side by side during a rolling
update, so each follows what the other writes. Rejected: one file for all claims. They would have to lock it, and one
bad byte in it would lose all claims.
"""

import contextlib
import functools
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from orion.atomic_files import UNFINISHED, replace_file
from orion.dra_driver.claims import Pod, Share
from orion.errors import Exhausted, Invalid
from orion.injection.slots import Slot, parse

_VERSION, _SUFFIX = 1, ".json"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_UNFINISHED_SECONDS = 60.0
""" A file that is so old and not finished belongs to a driver that was killed. """

_Identity = tuple[int, int]
""" A file's inode and the time of its last change. """

_log = logging.getLogger(__name__)


class GivenShare(Share):
    """A share and its slot."""

    slot_id: str

    @functools.cached_property
    def slot(self) -> Slot:
        """The slot that the claim was given."""
        return parse(self.slot_id)


class Record(BaseModel):
    """A prepared claim."""

    model_config = ConfigDict(frozen=True)

    version: int = _VERSION
    boot: str
    """ The id of the boot in which the claim was last prepared: no process of an earlier boot can live. """
    uid: str
    namespace: str
    name: str
    pods: tuple[Pod, ...]
    shares: tuple[GivenShare, ...]
    released: bool = False
    """ The claim has given its slots back, and no agent knows it yet. """
    specification: dict[str, Any] = {}
    """ The content of the claim's CDI file. """
    cdi_names: dict[str, list[str]] = {}
    """ By request, the devices of other CDI specifications that its containers get. """

    @property
    def mount_sources(self) -> Iterator[Path]:
        """The paths of the node that the claim's containers mount."""
        for device in self.specification.get("devices", ()):
            for mount in device["containerEdits"].get("mounts", ()):
                yield Path(mount["hostPath"])


def boot_id() -> str:
    """Return the id of the machine's current boot."""
    return _BOOT_ID.read_text().strip()


class Records:
    """The records in a folder on the node's disk.

    Args:
        folder: the folder; made if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, Record] = {}
        self._files: dict[str, _Identity] = {}
        """ By claim, the file that was read or written last. """
        self.unread: frozenset[str] = frozenset()
        """ The claims whose files could not be read at the last refresh, but perhaps at the next: what they have is not
        known. """

    def load(self) -> None:
        """Read all records. A file with other content counts as no record, and is replaced or removed with its claim.

        A folder counts as no record, too, but only a person may remove it.

        Raises:
            Exhausted: the folder cannot be made.
        """
        self.refresh()
        for left in self._folder.glob(UNFINISHED):
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime > _UNFINISHED_SECONDS:
                    left.unlink()

    def refresh(self) -> None:
        """Read what another driver has written since; write all records again if somebody has removed the folder.

        Raises:
            Exhausted: the file system rejects the records.
        """
        before = dict(self._known)
        found = self._found()
        for uid in before.keys() - found.keys():
            if self._known.get(uid) is before[uid]:  # else another call has saved it meanwhile
                self._known.pop(uid, None)
        changed = [uid for uid in sorted(found) if found[uid] != self._files.get(uid)]
        unread = {uid for uid in changed if not self._read(self._path(uid))}
        self._files = {uid: file for uid, file in found.items() if uid not in unread}
        self.unread = frozenset(unread)

    def _found(self) -> dict[str, _Identity]:
        """Return each claim's file. Every call of the kubelet needs them, so this is one pass over the folder.

        Raises:
            Exhausted: the file system rejects the records, or their folder cannot be read.
        """
        if not self._folder.is_dir():
            self._write_all()
        try:
            with os.scandir(self._folder) as entries:
                records = [each for each in entries if each.name.endswith(_SUFFIX) and not each.name.startswith(".")]
            return {each.name.removesuffix(_SUFFIX): _identity(each) for each in records}
        except OSError as error:
            raise Exhausted(f"the records of claims cannot be read: {error}") from None

    def _read(self, path: Path) -> bool:
        """Read a file; return whether this ended, so that another attempt would give the same."""
        try:
            record = Record.model_validate_json(path.read_bytes())
            for share in record.shares:
                parse(share.slot_id)
            if record.version != _VERSION or path != self._path(record.uid):
                raise ValueError("it is of another version or of another claim")
        except FileNotFoundError:
            self._known.pop(path.stem, None)
        except (ValidationError, Invalid, ValueError, IsADirectoryError) as error:
            why = str(error).splitlines()[0]
            _log.error("claims: %s cannot be used: %s; its claim is prepared again when a pod needs it", path, why)
        except OSError as error:
            if path.stem not in self.unread:
                _log.error("claims: %s cannot be read now, and is read again: %s", path, error)
            return False
        else:
            self._known[record.uid] = record
        return True

    def _write_all(self) -> None:
        known = list(self._known.values())
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise Exhausted(f"the folder for the records of claims cannot be made: {error}") from None
        for record in known:
            self.save(record)

    def all(self) -> list[Record]:
        """Return all records."""
        return list(self._known.values())

    def of(self, uid: str) -> Record | None:
        """Return the record of a claim; None: there is none."""
        return self._known.get(uid)

    def has_file(self, uid: str) -> bool:
        """Return whether a claim has a file, although it may be unreadable."""
        return self._path(uid).exists()

    def save(self, record: Record) -> None:
        """Save a record.

        Raises:
            Exhausted: the file system rejects it.
        """
        path = self._path(record.uid)
        if not self._folder.is_dir():
            self._write_all()
        try:
            replace_file(path, record.model_dump_json().encode(), durable=True)
            self._files[record.uid] = _identity(path)
        except OSError as error:
            raise Exhausted(f"the record of claim {record.namespace}/{record.name} cannot be saved: {error}") from None
        self._known[record.uid] = record

    def remove(self, uid: str) -> None:
        """Remove the record of a claim, if there is one.

        Raises:
            Exhausted: the file system rejects it.
        """
        try:
            self._path(uid).unlink(missing_ok=True)
        except OSError as error:
            raise Exhausted(f"the record of the claim with the uid {uid} cannot be removed: {error}") from None
        self._known.pop(uid, None)
        self._files.pop(uid, None)

    def _path(self, uid: str) -> Path:
        if not uid or "/" in uid or uid.startswith("."):
            raise Invalid(f"{uid!r} is not the uid of a claim")
        return self._folder / f"{uid}{_SUFFIX}"


def _identity(file: Path | os.DirEntry[str]) -> _Identity:
    try:
        found = file.stat()
    except OSError:
        return (0, 0)
    return (found.st_ino, found.st_mtime_ns)
