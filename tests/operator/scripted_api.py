"""A fake API server that produces rare faults on demand: expired versions, interrupted watches, Retry-After.

It serves lists and watches of Orion's kinds, and answers that a test defines. tests/cluster tests the behaviour of real
API servers.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ScriptedApi:
    """Serves `objects` at any path below /apis, and empty objects elsewhere. Use it within one event loop."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.lists = 0
        self.watches: list[str] = []
        """ The resourceVersion at which each watch began. """
        self.refusals: list[tuple[int, dict[str, str]]] = []
        """ Status and headers of error answers to the next requests. """
        self.answer: Answer | None = None
        """ A function that answers all requests; None: this class answers them. """
        self.requests: list[str] = []
        """ Method and path of each request. """
        self.most_under_way = self._under_way = 0
        self.url = ""
        self._queues: set[asyncio.Queue[dict[str, Any] | None]] = set()
        self._runner: web.AppRunner | None = None

    async def start(self) -> "ScriptedApi":
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def stop(self) -> None:
        self.cut()
        assert self._runner is not None
        await self._runner.cleanup()

    def put(self, plain: dict[str, Any], silently: bool = False) -> None:
        """Create or change an object.

        Args:
            plain: the object.
            silently: send no event to the watches.
        """
        self.version += 1
        name = plain["metadata"]["name"]
        kind = "MODIFIED" if name in self.objects else "ADDED"
        self.objects[name] = {**plain, "metadata": {**plain["metadata"], "resourceVersion": str(self.version)}}
        if not silently:
            self.say(kind, self.objects[name])

    def delete(self, name: str) -> None:
        self.version += 1
        gone = self.objects.pop(name)
        self.say("DELETED", {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}})

    def say(self, kind: str, plain: dict[str, Any]) -> None:
        """Send an event to every watch."""
        for queue in self._queues:
            queue.put_nowait({"type": kind, "object": plain})

    def cut(self) -> None:
        """End every watch."""
        for queue in self._queues:
            queue.put_nowait(None)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path}")
        self._under_way += 1
        self.most_under_way = max(self.most_under_way, self._under_way)
        try:
            return await (self.answer or self._answer)(request)
        finally:
            self._under_way -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.refusals:
            status, headers = self.refusals.pop(0)
            return web.json_response({"code": status, "message": "as reported"}, status=status, headers=headers)
        if request.method != "GET" or not request.path.startswith("/apis/"):
            return web.json_response({})
        if "watch" in request.query:
            return await self._watch(request)
        self.lists += 1
        wanted = request.path.rsplit("/", 1)[1]
        kinds = {"gpushares": "GPUShare", "gpudevices": "GPUDevice"}
        items = [each for each in self.objects.values() if each.get("kind") == kinds[wanted]]
        begin, limit = int(request.query.get("continue", 0)), int(request.query.get("limit", 500))
        metadata = {"resourceVersion": str(self.version)}
        if begin + limit < len(items):
            metadata["continue"] = str(begin + limit)
        return web.json_response({"metadata": metadata, "items": items[begin : begin + limit]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response, queue = web.StreamResponse(), asyncio.Queue[dict[str, Any] | None]()
        self._queues.add(queue)  # before a test can see the watch and make an event for it
        self.watches.append(request.query["resourceVersion"])
        try:
            await response.prepare(request)
            while (event := await queue.get()) is not None:
                text = json.dumps(event).encode() + b"\n"
                for start in range(0, len(text), 1_000):  # so that a client must assemble lines from several reads
                    await response.write(text[start : start + 1_000])
        except ConnectionError:
            pass
        finally:
            self._queues.discard(queue)
        return response


@pytest.fixture
async def script() -> AsyncIterator[ScriptedApi]:
    """A running ScriptedApi."""
    scripted = await ScriptedApi().start()
    yield scripted
    await scripted.stop()
