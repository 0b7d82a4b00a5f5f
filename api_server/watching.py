"""Keeps the objects of one kind current in memory, by list and watch.

The list comes in pages and replaces all objects at once. Then watches deliver the changes since the list's resource
version. The next watch continues where the last one ended, also after a broken connection or a restart of the server.
If the server no longer has the version at which a watch ended (410 Gone), the list is read again. Bookmarks keep the
version recent while there are no changes, and show that the connection works.

Events that change only a status are skipped before they are parsed: with a thousand shares they are the majority. An
object that cannot be parsed is left out, with a warning in the log. The API server has validated the object, so the
object belongs to a newer version of the API.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from orion.api_server.requests import ApiError, ApiServer
from orion.errors import Unreadable

T = TypeVar("T")
G = TypeVar("G")
_log = logging.getLogger(__name__)

_WATCH_S = 240
_SILENCE_S = 150.0
""" The API server sends a bookmark every minute; the connection counts as dead after two missing bookmarks. If the
server's machine has failed, the kernel's probes end the connection before (`Access`). """
_BACKOFF_S = (0.1, 30.0)


class Watched(Generic[T, G]):
    """The objects of a kind, by namespace and name.

    Args:
        server: the API server.
        path: the path of the list, such as /apis/orion.gpu/v1alpha1/gpushares.
        read: converts parsed JSON into the object to keep; may raise Unreadable.
        gather: combines the objects of a namespace into the result of `of`; called on demand, once after changes.
        by_generation: whether to skip events that do not change metadata.generation, such as changes of a status.
        query: parameters of list and watch, such as a field selector.
        on_change: called on the event loop after each list and each event except bookmarks.
    """

    def __init__(
        self,
        server: ApiServer,
        path: str,
        read: Callable[[Mapping[str, Any]], T],
        gather: Callable[[Iterable[T]], G],
        *,
        by_generation: bool,
        query: Mapping[str, str] = MappingProxyType({}),
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._server = server
        self._path = path
        self._read = read
        self._gather = gather
        self._gathered: dict[str, G] = {}
        self._by_generation = by_generation
        self._query = query
        self._on_change = on_change
        self._objects: dict[str, dict[str, T]] = {}
        self._seen: dict[tuple[str, str], object] = {}
        self._version = ""
        self._alive_at = time.monotonic()
        self.synced = asyncio.Event()
        """ Set when the first list has arrived. """
        self.lists = 0
        self.events = 0
        self.errors = 0

    def of(self, namespace: str) -> G:
        """Return what `gather` makes of a namespace's objects. Cluster-scoped objects have an empty namespace."""
        if namespace not in self._objects:
            return self._gather(())  # not cached: callers may ask for any number of namespaces
        if namespace not in self._gathered:
            self._gathered[namespace] = self._gather(self._objects[namespace].values())
        return self._gathered[namespace]

    def all(self) -> Iterator[T]:
        """Return every object, of all namespaces."""
        return (each for objects in self._objects.values() for each in objects.values())

    def same(self, plain: Mapping[str, Any]) -> T | None:
        """Return what is known of an object, if the watch has seen it with the same uid and generation."""
        metadata = plain["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        seen = self._seen.get((namespace, name)) == _mark(metadata)
        return self._objects.get(namespace, {}).get(name) if seen else None

    @property
    def count(self) -> int:
        """The number of objects."""
        return sum(len(each) for each in self._objects.values())

    @property
    def silent_s(self) -> float:
        """The seconds since the last data from the server; before the first, since the watch was made."""
        return time.monotonic() - self._alive_at

    async def run(self) -> None:
        """Keep the objects current until cancelled; after an error, retry with exponential backoff."""
        delay = _BACKOFF_S[0]
        while True:
            received = (self.lists, self.events)
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                wanted = random.uniform(0, _BACKOFF_S[0])  # limits requests to a server that ends every watch at once
            except Exception as error:
                self.errors += 1
                wanted = max(delay * random.uniform(0.5, 1), self._after(error))
                delay = min(delay * 2, _BACKOFF_S[1])
            if received != (self.lists, self.events):
                delay = _BACKOFF_S[0]
            await asyncio.sleep(wanted)

    def _after(self, error: Exception) -> float:
        """Decide whether the next step is a list or a watch; return the server's Retry-After in seconds, or 0."""
        gone = isinstance(error, ApiError) and error.status == 410
        if gone or not isinstance(error, ApiError):
            self._version = ""  # expired, or the event was not understood: read the whole list again
        _log.log(logging.INFO if gone else logging.WARNING, "watch of %s: %r", self._path, error)
        return (error.retry_after_s or 0.0) if isinstance(error, ApiError) else 0.0

    async def _list(self) -> None:
        objects: dict[str, dict[str, T]] = {}
        seen: dict[tuple[str, str], object] = {}
        version = ""
        async for page in self._server.pages(self._path, **self._query):
            for plain in page["items"]:
                self._take(plain, objects, seen)
            version = page["metadata"]["resourceVersion"]
        self._objects, self._seen, self._version = objects, seen, version
        self._gathered = {}
        self.lists += 1
        self._alive_at = time.monotonic()
        self.synced.set()
        self._on_change()

    async def _watch(self) -> None:
        query = {
            **self._query,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(_WATCH_S * random.uniform(0.8, 1.2))),  # replicas reconnect at different times
        }
        async for event in self._server.events(self._path, _SILENCE_S, **query):
            self._alive_at = time.monotonic()
            self.events += 1
            self._apply(event["type"], event["object"])

    def _apply(self, kind: str, plain: Mapping[str, Any]) -> None:
        if kind == "ERROR":
            raise ApiError(int(plain.get("code") or 500), str(plain.get("message")))
        if kind == "DELETED":
            self._drop(plain)
        elif kind in ("ADDED", "MODIFIED"):
            self._take(plain, self._objects, self._seen)
        self._version = plain["metadata"]["resourceVersion"]
        if kind != "BOOKMARK":
            self._on_change()

    def _take(
        self, plain: Mapping[str, Any], objects: dict[str, dict[str, T]], seen: dict[tuple[str, str], object]
    ) -> None:
        metadata = plain["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        if self._by_generation:
            mark = _mark(metadata)
            if seen.get((namespace, name)) == mark:
                return
            seen[namespace, name] = mark
        kept = objects.setdefault(namespace, {})
        before = kept.get(name)
        try:
            kept[name] = self._read(plain)
        except Unreadable as error:
            kept.pop(name, None)
            _log.warning("%s %s/%s is left out: %s", self._path, namespace, name, error)
        if kept.get(name) != before:
            self._gathered.pop(namespace, None)

    def _drop(self, plain: Mapping[str, Any]) -> None:
        namespace, name = plain["metadata"].get("namespace", ""), plain["metadata"]["name"]
        self._seen.pop((namespace, name), None)
        self._gathered.pop(namespace, None)
        kept = self._objects.get(namespace, {})
        kept.pop(name, None)
        if not kept:
            self._objects.pop(namespace, None)


def _mark(metadata: Mapping[str, Any]) -> tuple[object, object]:
    return metadata.get("uid"), metadata.get("generation")
