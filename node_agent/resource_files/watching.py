"""Waits until what a path names may have changed: a file, or a folder with its files.

A path changes in many ways. A program writes the file in place, or renames another one over it. The kubelet updates a
mounted ConfigMap by replacing a link that lies elsewhere on the way to the file. A folder may appear later. So each
entry on the way is watched: its folder if it is a link, missing or the last one, and else only the folder itself. The
second kind costs nothing in folders with many changes, such as /tmp.

A file counts as changed when its writer closes it, since it is half written before. Refused: watching only the file's
folder, which misses links, and watching the file alone, which ends when the file is replaced.
"""

import asyncio
import contextlib
import logging
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from orion.node_agent.resource_files.inotify import Inotify, Mask

_log = logging.getLogger(__name__)

_ENTRY = Mask.CREATE | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.DELETE | Mask.DELETE_SELF | Mask.MOVE_SELF
_SELF = Mask.DELETE_SELF | Mask.MOVE_SELF
_WRITTEN = Mask.CLOSE_WRITE | _SELF
_LINKS_MAX = 40
_TRIES = 5
""" If folders change while they are being watched, look again so often. """
_SECONDS = 10.0
""" After this time the path is checked without an event: changes on other machines' file systems cause none. """
_POLL_SECONDS = 0.05
""" The same if inotify cannot be used. """

_Wanted = dict[str, tuple[Mask, frozenset[str] | None]]
""" By path: what to report, and the names of entries that matter; None: all. """


class Watching:
    """The watches of one path. Create it inside a running event loop, and close it.

    Args:
        path: names a file, a folder, or nothing yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = os.path.abspath(path)
        self._changed = asyncio.Event()
        self._names: dict[int, frozenset[str] | None] = {}
        """ By watch, as in `_Wanted`. """
        self._complete = self._warned = False
        self._inotify: Inotify | None = None
        try:
            self._inotify = Inotify()
        except OSError as error:
            self._polls(error)
        else:
            asyncio.get_running_loop().add_reader(self._inotify.descriptor, self._readable)

    def follow(self) -> None:
        """Watch the path as it is now. Call this after each change, before reading what the path names."""
        self._changed.clear()
        for _ in range(_TRIES):
            wanted = wanted_watches(self._path)
            self._watch(wanted)
            if wanted_watches(self._path) == wanted:
                return

    async def changed(self) -> None:
        """Return when something may have changed, or when it is time to check without an event."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS if self._complete else _POLL_SECONDS):
                await self._changed.wait()

    def close(self) -> None:
        """End all watches."""
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.descriptor)
            self._inotify.close()
            self._inotify = None

    def _watch(self, wanted: Mapping[str, tuple[Mask, frozenset[str] | None]]) -> None:
        if self._inotify is None:
            return
        names: dict[int, frozenset[str] | None] = {}
        complete = True
        for path, (mask, entries) in wanted.items():
            try:
                watch = self._inotify.watch(path, mask | Mask.MASK_ADD)
            except (FileNotFoundError, NotADirectoryError):
                continue  # it went a moment ago; `follow` looks again
            except OSError as error:
                if isinstance(error, PermissionError) and mask == _SELF:
                    continue  # this user may pass the folder and not read it; it is rarely renamed
                complete = False
                self._polls(error)
                continue
            before = names.get(watch, frozenset())
            names[watch] = None if before is None or entries is None else before | entries
        for watch in self._names.keys() - names.keys():
            self._inotify.end(watch)
        self._names, self._complete = names, complete

    def _polls(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            why = f"{error.filename}: {error.strerror}"
            _log.warning("resource file: %s is read every %g s: no watch (%s)", self._path, _POLL_SECONDS, why)

    def _readable(self) -> None:
        assert self._inotify is not None
        for event in self._inotify.read():
            names = self._names.get(event.watch, frozenset())
            relevant = names is None or not event.name or event.name in names
            if event.mask & Mask.OVERFLOW or (event.watch in self._names and relevant):
                self._changed.set()


def wanted_watches(path: str) -> _Wanted:
    """Return what to watch so that no change of what a path names is missed."""
    masks: defaultdict[str, Mask] = defaultdict(lambda: Mask(0))
    names: defaultdict[str, frozenset[str] | None] = defaultdict(frozenset)
    for entry in _ways(path):
        folder, name = os.path.split(entry)
        if os.path.isdir(entry) and not os.path.islink(entry):
            masks[entry] |= _SELF
            continue
        masks[folder] |= _ENTRY
        before = names[folder]
        names[folder] = before if before is None else before | {name}
        if os.path.isfile(entry) and not os.path.islink(entry):
            masks[entry] |= _WRITTEN
    if os.path.isdir(path):
        folder = os.path.realpath(path)
        masks[folder] |= _ENTRY | Mask.CLOSE_WRITE
        names[folder] = None
    return {path: (mask, names[path]) for path, mask in masks.items()}


def _ways(path: str) -> Iterator[str]:
    """Yield each entry on the way to what a path names; for a folder, also those on the ways to linked files in it."""
    yield from _way(path)
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if entry.is_symlink():
                yield from _way(os.path.join(os.path.realpath(path), entry.name))


def _way(path: str) -> Iterator[str]:
    """Yield the entries on the way to what a path names, links and their targets, up to the first that is missing."""
    at, rest, links = "/", _parts(path), 0
    while rest:
        name = rest.pop()
        if name == "..":
            at = os.path.dirname(at)
            continue
        entry = os.path.join(at, name)
        yield entry
        try:
            target = os.readlink(entry)
        except OSError:
            if not os.path.lexists(entry):
                return
            at = entry
            continue
        links += 1
        if links > _LINKS_MAX:
            return
        at = "/" if target.startswith("/") else at
        rest += _parts(target)


def _parts(path: str) -> list[str]:
    """Return the names in a path, the last one first."""
    return [part for part in path.split("/") if part not in ("", ".")][::-1]
