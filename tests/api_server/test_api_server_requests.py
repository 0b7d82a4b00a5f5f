"""Requests to the API server: retries and their delay, concurrency, time limits, pages."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from orion.api_server.access import Access
from orion.api_server.metrics import RequestMetrics
from orion.api_server.paths import SHARES
from orion.api_server.requests import PAGE, ApiError, ApiServer
from tests.operator.scripted_api import ScriptedApi

AT_ONCE = 4


@pytest.fixture
async def api(script: ScriptedApi) -> AsyncIterator[ApiServer]:
    server = ApiServer(Access(script.url), "orion-test", concurrency=AT_ONCE)
    yield server
    await server.close()


async def test_after_429_the_client_waits_for_the_time_in_retry_after(script: ScriptedApi, api: ApiServer) -> None:
    script.refusals = [(429, {"Retry-After": "1"})]
    began = time.monotonic()
    assert await api.patch("/x", {"a": 1}) == {}
    assert time.monotonic() - began >= 1.0
    assert script.requests == ["PATCH /x"] * 2


async def test_a_server_error_is_retried_and_a_rejection_is_not(script: ScriptedApi, api: ApiServer) -> None:
    script.refusals = [(500, {}), (503, {})]
    await api.get("/x")
    assert len(script.requests) == 3
    for status in (401, 403, 404, 409, 410, 422):
        script.refusals = [(status, {})]
        with pytest.raises(ApiError, match=f"{status}: GET /y: as reported") as error:
            await api.get("/y")
        assert error.value.status == status
    assert script.requests.count("GET /y") == 6


async def test_after_the_last_retry_the_error_has_the_servers_retry_after(script: ScriptedApi, api: ApiServer) -> None:
    script.refusals = [(429, {"Retry-After": "0"})] * 4 + [(429, {"Retry-After": "7"})]
    with pytest.raises(ApiError) as error:
        await api.put("/x", {})
    assert (error.value.status, error.value.retry_after_s) == (429, 7)


async def test_a_request_is_not_tried_again_once_its_condition_no_longer_holds(
    script: ScriptedApi, api: ApiServer
) -> None:
    holds = [True, False]
    script.refusals = [(503, {"Retry-After": "0"})] * 3
    with pytest.raises(ApiError) as error:
        await api.only_while(lambda: holds.pop(0)).patch("/x", {"a": 1})
    assert (error.value.status, len(script.requests), holds) == (503, 2, [])
    script.refusals.clear()
    assert await api.only_while(lambda: False).patch("/x", {"a": 1}) == {}  # the caller asks before the first time


async def test_an_eviction_that_a_disruption_budget_forbids_is_not_retried(script: ScriptedApi, api: ApiServer) -> None:
    script.refusals = [(429, {"Retry-After": "10"})]
    with pytest.raises(ApiError) as error:
        await api.post("/api/v1/namespaces/n/pods/p/eviction", {})
    assert error.value.status == 429


async def test_the_error_of_an_absent_server_has_status_zero_and_counts() -> None:
    registry = CollectorRegistry()
    api = ApiServer(Access("http://127.0.0.1:9"), "orion-test", RequestMetrics(registry))
    with pytest.raises(ApiError) as error:
        await api.get("/x")
    assert error.value.status == 0
    assert registry.get_sample_value("orion_requests_total", {"method": "GET", "status": "0"}) == 1
    with pytest.raises(ApiError) as error:
        await anext(api.events("/x", 1))
    assert error.value.status == 0
    await api.close()


async def test_a_server_that_does_not_answer_is_a_timeout(script: ScriptedApi) -> None:
    never = asyncio.Event()

    async def silent(_: web.Request) -> web.StreamResponse:
        await never.wait()
        return web.json_response({})

    script.answer = silent
    api = ApiServer(Access(script.url), "orion-test", attempt_s=0.1)
    for asked in (api.get("/x"), anext(api.events("/x", 0.1))):
        with pytest.raises(ApiError) as error:
            await asked
        assert error.value.status == 0
    never.set()
    await api.close()


async def test_the_number_of_concurrent_requests_is_bounded(script: ScriptedApi, api: ApiServer) -> None:
    async def slow(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.02)
        return web.json_response({})

    script.answer = slow
    await asyncio.gather(*(api.patch(f"/{number}", {}) for number in range(40)))
    assert script.most_under_way == AT_ONCE


async def test_a_list_comes_in_pages(script: ScriptedApi, api: ApiServer) -> None:
    for number in range(2 * PAGE + 1):
        script.put({"kind": "GPUShare", "metadata": {"name": f"s{number}"}})
    assert [len(page["items"]) async for page in api.pages(SHARES)] == [PAGE, PAGE, 1]


@pytest.mark.parametrize("empty", [{"items": None}, {}])  # API servers answer so if only metadata are requested
async def test_an_empty_list_has_no_items(script: ScriptedApi, api: ApiServer, empty: dict[str, None]) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {}, **empty})

    script.answer = answer
    assert [page["items"] async for page in api.pages(SHARES)] == [[]]


async def test_a_list_that_expires_between_pages_is_an_error(script: ScriptedApi, api: ApiServer) -> None:
    for number in range(PAGE + 1):
        script.put({"kind": "GPUShare", "metadata": {"name": f"s{number}"}})
    pages = api.pages(SHARES)
    await anext(pages)
    script.refusals = [(410, {})]
    with pytest.raises(ApiError) as error:
        await anext(pages)
    assert error.value.status == 410
