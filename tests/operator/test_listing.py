"""Lists that fail: only objects that were listed count, and kopf gets errors as they are."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer

from orion.api_server.paths import DEVICES, NODES, PODS, SHARES
from orion.operator.reconciler.controller import Controller
from orion.operator.reconciler.lease import Alone
from orion.operator.reconciler.listing import Lists
from orion.operator.reconciler.metrics import Metrics
from orion.operator.reconciler.state import State
from orion.operator.reconciler.watching import Intake

ERROR = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500}
EMPTY = {"metadata": {"resourceVersion": "9"}, "items": []}


class Api:
    """Answers each list with `status` and `body`."""

    server: BaseTestServer

    def __init__(self) -> None:
        self.status, self.body = 200, dict[str, Any](EMPTY)
        metrics = Metrics()
        self.lists = Lists(Intake(State(), Controller(State(), None, Alone(metrics), metrics, "test")))  # type: ignore[arg-type]

    async def answer(self, request: web.Request) -> web.Response:
        return web.json_response(self.body, status=self.status)

    async def ask(self, *paths: str, more: str = "") -> list[Any]:
        async with aiohttp.ClientSession(response_class=self.lists.response_class()) as session:
            answers = [await session.get(self.server.make_url(f"{path}?limit=500{more}")) for path in paths]
            return [await each.json() for each in answers]

    async def check(self, path: str) -> None:
        """Ask, and look at the answer as kopf does."""
        async with aiohttp.ClientSession(response_class=self.lists.response_class()) as session:
            answer = await session.get(self.server.make_url(path))
            await answer.json()
            answer.raise_for_status()


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    found = Api()
    application = web.Application()
    application.router.add_get("/{path:.*}", found.answer)
    async with TestServer(application) as found.server:
        yield found


@pytest.mark.parametrize(("status", "body"), [(500, ERROR), (403, ERROR), (503, {"message": "a proxy's error"})])
async def test_an_error_is_no_list(api: Api, status: int, body: dict[str, Any]) -> None:
    api.status, api.body = status, body
    assert await api.ask(PODS, SHARES, NODES, DEVICES) == [body] * 4
    assert not api.lists.complete.is_set()
    api.status, api.body = 200, dict(EMPTY)
    await api.ask(PODS, SHARES, NODES, DEVICES)
    assert api.lists.complete.is_set()


@pytest.mark.parametrize("query", ["limit=500", "watch=true"])
@pytest.mark.parametrize("status", [401, 403, 404, 500, 503, 520])
async def test_kopf_tries_a_list_and_a_watch_again_after_an_error_that_may_pass(
    api: Api, status: int, query: str
) -> None:
    api.status, api.body = status, {"message": "not now"}
    with pytest.raises(aiohttp.ClientConnectionError, match=f'{status} .*: {{"message": "not now"}}'):
        await api.check(f"{PODS}?{query}")


@pytest.mark.parametrize(
    ("status", "query"),
    [(401, ""), (400, "limit=500"), (429, "watch=true"), (410, "watch=true"), (404, ""), (503, "a=b")],
)
async def test_kopf_gets_other_errors_as_they_are(api: Api, status: int, query: str) -> None:
    api.status, api.body = status, ERROR
    with pytest.raises(aiohttp.ClientResponseError, match=str(status)):
        await api.check(f"{PODS}?{query}")


async def test_a_list_that_has_expired_begins_again(api: Api) -> None:
    api.status, api.body = 410, ERROR
    with pytest.raises(aiohttp.ClientPayloadError):  # kopf lists again after this error, and ends after 410
        await api.ask(PODS, more="&continue=abc")
