"""Objects of one kind, kept current in memory by list and watch.

The list comes in pages and replaces everything at once; then a watch brings changes from its resource version on, over
ends, broken connections and restarts of the server, until the server has forgotten that version (410 Gone) and the list
is taken again. Bookmarks keep the version young where nothing happens, and prove that the connection lives.

A change of a status only is passed over before anything is parsed: with a thousand shares most events are such. An
object that cannot be read is left out and said once; the API server has validated it, so it is a newer version's.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from orion.api_server.requests import ApiError, ApiServer
from orion.crds.errors import Unreadable

T = TypeVar("T")
G = TypeVar("G")
_log = logging.getLogger(__name__)

_WATCH_S = 240
_SILENCE_S = 150.0
""" Bookmarks come every minute; two that are missing mean a dead connection. """
_BACKOFF_S = (0.1, 30.0)


class Watched(Generic[T, G]):
    """The objects of a kind, by namespace and name.

    Args:
        server: where they are.
        path: of the list, such as /apis/orion.gpu/v1alpha1/gpushares.
        read: makes of a plain object what is kept; may raise Unreadable.
        gather: makes of a namespace's objects what is asked for; done once after each change, when it is needed.
        by_generation: whether only a new generation, labels or annotations matter, not the status.
        query: of list and watch, such as a field selector.
        on_change: called on the event loop after each list and each event that changed something.
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
        self._alive_at = 0.0
        self.synced = asyncio.Event()
        """ Set once the first list is here. """
        self.lists = 0
        self.events = 0
        self.errors = 0

    def of(self, namespace: str) -> G:
        """Return what the objects of a namespace amount to; of the empty one: those of a kind without namespaces."""
        if namespace not in self._objects:
            return self._gather(())  # not kept: any namespace may be asked for
        if namespace not in self._gathered:
            self._gathered[namespace] = self._gather(self._objects[namespace].values())
        return self._gathered[namespace]

    def all(self) -> Iterator[T]:
        """Return every object, of all namespaces."""
        return (each for objects in self._objects.values() for each in objects.values())

    @property
    def count(self) -> int:
        """How many objects there are."""
        return sum(len(each) for each in self._objects.values())

    @property
    def silent_s(self) -> float:
        """How long ago the server said something."""
        return time.monotonic() - self._alive_at

    async def run(self) -> None:
        """Keep the objects current until cancelled; whatever goes wrong, it tries again, ever more slowly."""
        delay = _BACKOFF_S[0]
        while True:
            heard = (self.lists, self.events)
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                wanted = random.uniform(0, _BACKOFF_S[0])  # a server that ends every watch at once is not flooded
            except Exception as error:
                self.errors += 1
                wanted = max(delay * random.uniform(0.5, 1), self._after(error))
                delay = min(delay * 2, _BACKOFF_S[1])
            if heard != (self.lists, self.events):
                delay = _BACKOFF_S[0]
            await asyncio.sleep(wanted)

    def _after(self, error: Exception) -> float:
        """Decide where to go on after an error; return for how long the server wants to be left alone, in seconds."""
        gone = isinstance(error, ApiError) and error.status == 410
        if gone or not isinstance(error, ApiError):
            self._version = ""  # forgotten there, or misunderstood here: nothing less than all of it is certain
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
            "timeoutSeconds": str(round(_WATCH_S * random.uniform(0.8, 1.2))),  # replicas do not return together
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
            mark = (metadata.get("uid"), metadata.get("generation"))
            if seen.get((namespace, name)) == mark:
                return
            seen[namespace, name] = mark
        self._gathered.pop(namespace, None)
        there = objects.setdefault(namespace, {})
        try:
            there[name] = self._read(plain)
        except Unreadable as error:
            there.pop(name, None)
            _log.warning("%s %s/%s is left out: %s", self._path, namespace, name, error)

    def _drop(self, plain: Mapping[str, Any]) -> None:
        namespace, name = plain["metadata"].get("namespace", ""), plain["metadata"]["name"]
        self._seen.pop((namespace, name), None)
        self._gathered.pop(namespace, None)
        there = self._objects.get(namespace, {})
        there.pop(name, None)
        if not there:
            self._objects.pop(namespace, None)
