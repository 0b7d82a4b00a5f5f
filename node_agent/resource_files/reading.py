"""Keeps the last good rules of a resource file, or of a folder with a file for each GPU.

One file is for every GPU of the node. In a folder, the name of a file is the GPU's UUID; other files are ignored. A
missing or faulty file leaves the last good rules in force, and the fault is logged once.
"""

import errno
import logging
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from orion.errors import Unreadable
from orion.node_agent.resource_files.parsing import SIZE_MAX, parse
from orion.node_agent.resource_files.rules import Rule

_log = logging.getLogger(__name__)

_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z-]{1,60}")


@dataclass(frozen=True)
class FileRules:
    """The rules of one file."""

    file: Path
    rules: Mapping[str, Rule] = field(default_factory=lambda: MappingProxyType({}))
    """ The last good rules, by id. """
    good: bool = False
    """ Whether the file was ever read without a fault. """
    fault: str = ""
    """ Why the file as it is now does not apply; empty: it does. """
    data: bytes | None = None
    """ The file's content; None: it could not be read. """

    @property
    def asked(self) -> float:
        """The sum of the requests."""
        return sum(rule.request or 0.0 for rule in self.rules.values())

    @property
    def remarks(self) -> tuple[str, ...]:
        """What people should know about the file, as sentences."""
        kept = "the last good rules stay in force" if self.good else "no id is known yet"
        scaled = (
            f"{self.file}: the requests add up to {self.asked:.3g} of the GPU's time: while all ids want the GPU, each "
            f"gets its request divided by {self.asked:.3g}"
        )
        return ((f"{self.fault}; {kept}",) if self.fault else ()) + ((scaled,) if self.asked > 1.000_001 else ())


class ResourceFiles:
    """The rules that a path names.

    Args:
        path: a file, a folder, or nothing yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[Path, FileRules] = {}
        self._is_folder = False

    def read(self) -> bool:
        """Read what has changed; return whether rules or faults differ from before."""
        before = dict(self._files)
        try:
            names = sorted(name for name in os.listdir(self.path) if _UUID.fullmatch(name))
            self._is_folder, paths = True, [self.path / name for name in names]
            self._files.pop(self.path, None)
        except NotADirectoryError:
            self._is_folder, paths = False, [self.path]
        except OSError:
            # A missing folder is no reason to take its files for gone one by one.
            paths = [] if self._is_folder else [self.path]
        for path in {*paths, *self._files}:
            self._files[path] = _read(self._files.get(path, FileRules(path)))
            _report(before.get(path, FileRules(path)), self._files[path])
        return self._files != before

    def of(self, uuid: str) -> FileRules:
        """Return the rules for a GPU."""
        path = self.path / uuid if self._is_folder else self.path
        return self._files.get(path) or FileRules(path)


def _read(before: FileRules) -> FileRules:
    try:
        data = _content(before.file)
        if data == before.data:
            return before
        rules = parse(data, str(before.file))
    except OSError as error:
        return replace(before, fault=f"{before.file} cannot be read: {error.strerror}; write it again", data=None)
    except Unreadable as error:
        return replace(before, fault=str(error), data=data)
    return FileRules(before.file, MappingProxyType({rule.id: rule for rule in rules}), good=True, data=data)


def _content(path: Path) -> bytes:
    """Return a file's content, or the beginning of one that is too long.

    Raises:
        OSError: the file cannot be read, or it is a pipe or a device, where a read could block.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(SIZE_MAX + 1)
    finally:
        os.close(descriptor)


def _report(before: FileRules, now: FileRules) -> None:
    """Log what has changed."""
    for remark in now.remarks:
        if remark not in before.remarks:
            _log.warning("resource file: %s", remark)
    if now.good and not now.fault and now != before:
        ids = ", ".join(list(now.rules)[:8]) + ", ..." * (len(now.rules) > 8)
        _log.info("resource file: %s is applied: %d ids (%s)", now.file, len(now.rules), ids or "none")
