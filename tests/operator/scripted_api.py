"""An API server that does on command what a real one does rarely: forgets versions, cuts watches, asks for patience.

Lists and watches of our own kinds, and whatever answers a test writes; what is about real behaviour is tested in the
cluster tier.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ScriptedApi:
    """Serves `objects` at any path below /apis, and nothing at others; used within one event loop."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.lists = 0
        self.watches: list[str] = []
        """ The resource version that each watch began at. """
        self.refusals: list[tuple[int, dict[str, str]]] = []
        """ Answers to the next requests, in place of the true ones: status and headers. """
        self.answer: Answer | None = None
        """ What answers in place of all this. """
        self.requests: list[str] = []
        """ Method and path of each. """
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
        """Make or change an object; silently: no watch is told."""
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
        """Tell every watch an event."""
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
        self.watches.append(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._queues.add(queue)
        try:
            while (event := await queue.get()) is not None:
                text = json.dumps(event).encode() + b"\n"
                for start in range(0, len(text), 1_000):  # lines come in pieces
                    await response.write(text[start : start + 1_000])
        except ConnectionError:
            pass
        finally:
            self._queues.discard(queue)
        return response


@pytest.fixture
async def script() -> AsyncIterator[ScriptedApi]:
    """One that runs until the test ends."""
    scripted = await ScriptedApi().start()
    yield scripted
    await scripted.stop()
