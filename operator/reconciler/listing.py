"""Takes the objects of kopf's lists, page by page.

kopf makes a queue, a task and several views for each object that it reports. That takes 0.6 ms of CPU, so the objects
of a large cluster would take half a minute at each start. So kopf lists as always, and the answer to its request gives
the objects to `Intake` and an empty page to kopf. kopf then watches from the version of this list, so no change is
lost in between. The events of a watch come through kopf's handlers.

The answers also decide what kopf does after an error: it tries again, also where it would end.
"""

import asyncio
import http
import time
from collections.abc import Iterable
from typing import Any

import aiohttp
from aiohttp.connector import Connection
from yarl import URL

from orion.api_server.paths import DEVICES, NODES, PODS, SHARES
from orion.operator.reconciler.watch_errors import WatchErrors
from orion.operator.reconciler.watching import Intake

_SLICE_S = 0.005
""" How long objects are taken before the loop does something else. """
_LATER = (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN, http.HTTPStatus.NOT_FOUND)
""" Besides errors of the server: answers to a list or a watch that may be others later, because a right or a definition
is missing for a time, or a server that starts does not know tokens yet. `Access` has renewed the token by then. After
401, kopf would log in again and cut all other watches, which ends them.
"""
_SAID_MAX = 512
""" How much of such an answer the log shows. """


class Lists:
    """Takes the lists of all watched kinds.

    Args:
        intake: takes the objects.
        namespaces: the namespaces whose pods and shares are watched; empty: all.
    """

    def __init__(self, intake: Intake, namespaces: tuple[str, ...] = ()) -> None:
        self._intake = intake
        self._awaited = {one for path in (PODS, SHARES, NODES, DEVICES) for one in paths(path, namespaces)}
        self._begun: set[str] = set()
        self.complete = asyncio.Event()
        """ Is set once each list has been taken to its end. """

    def response_class(self) -> type[aiohttp.ClientResponse]:
        """Return the class of the responses to kopf's requests."""
        take, errors = self.take, WatchErrors()

        class Response(aiohttp.ClientResponse):
            async def start(self, connection: Connection) -> aiohttp.ClientResponse:
                await super().start(connection)
                if self.ok and "watch" in self.url.query:
                    self.content = errors.lines_of(self)
                return self

            async def json(self, **options: Any) -> Any:
                answer = await super().json(**options)
                if "limit" not in self.url.query:  # only lists have it
                    return answer
                if self.status == http.HTTPStatus.GONE:
                    # The list took longer than the API server keeps its version. For kopf, 410 would be fatal.
                    raise aiohttp.ClientPayloadError("the list has expired, so it begins again")
                if self.ok:  # kopf reads errors by this method, too
                    await take(self.url, answer)
                return answer

            def raise_for_status(self) -> None:
                # kopf gives watches up after these answers: at once, or after a minute. After a connection that fails,
                # it tries again for ever.
                later = self.status in _LATER or self.status >= http.HTTPStatus.INTERNAL_SERVER_ERROR
                if later and {"limit", "watch"} & self.url.query.keys():
                    said = (self._body or b"")[:_SAID_MAX].decode(errors="replace")  # kopf has read it
                    self.release()
                    raise aiohttp.ClientConnectionError(f"{self.status} {self.reason}: {said}")
                super().raise_for_status()

        return Response

    async def take(self, url: URL, page: dict[str, Any]) -> None:
        """Take the objects out of one page of a list."""
        if "continue" not in url.query:
            if url.path in self._begun:
                self._intake.list_again()
            self._begun.add(url.path)
        items, page["items"] = page.get("items") or (), []
        until = time.monotonic() + _SLICE_S
        for item in items:
            self._intake.take(url.name, {"type": None, "object": item})
            if time.monotonic() >= until:
                await asyncio.sleep(0)
                until = time.monotonic() + _SLICE_S
        if not page["metadata"].get("continue"):
            self._awaited = {path for path in self._awaited if not url.path.endswith(path)}
            if not self._awaited:
                self.complete.set()


def paths(path: str, namespaces: Iterable[str]) -> list[str]:
    """Return the paths of the lists of one kind: one for each namespace; for all namespaces, only `path`."""
    if not namespaces or path in (NODES, DEVICES):
        return [path]
    folder, plural = path.rsplit("/", 1)
    return [f"{folder}/namespaces/{name}/{plural}" for name in namespaces]
