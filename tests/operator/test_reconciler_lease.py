"""The Lease: one process holds it, another takes over, and a holder that cannot renew it stops in time."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from orion.api_server.access import Access
from orion.api_server.requests import ApiServer
from orion.operator.reconciler.lease import Leadership
from orion.operator.reconciler.metrics import Metrics
from orion.operator.reconciler.settings import ReconcilerSettings
from tests.operator.scripted_api import ScriptedApi
from tests.waiting import eventually_async

SETTINGS = ReconcilerSettings(lease_seconds=3, lease_namespace="n")


@pytest.fixture
async def api(script: ScriptedApi) -> AsyncIterator[ApiServer]:
    server = ApiServer(Access(script.url), "orion-test")
    yield server
    await server.close()


class Leases:
    """A fake API server that stores one Lease with a resourceVersion."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            if self.lease is None:
                return web.json_response({"message": "not found"}, status=404)
            return web.json_response(self.lease)
        body = await request.json()
        version = self.lease["metadata"]["resourceVersion"] if self.lease else None
        if (request.method == "POST") == (self.lease is not None) or body["metadata"].get("resourceVersion") != version:
            return web.json_response({"message": "conflict"}, status=409)
        body["metadata"]["resourceVersion"] = str(int(version or 0) + 1)
        self.lease = body
        return web.json_response(body, status=201 if request.method == "POST" else 200)


async def test_of_two_processes_one_holds_the_lease_and_the_other_follows(script: ScriptedApi, api: ApiServer) -> None:
    leases = Leases()
    script.answer = leases.answer
    one = Leadership(api, SETTINGS.model_copy(update={"identity": "one"}), Metrics())
    other = Leadership(api, SETTINGS.model_copy(update={"identity": "other"}), Metrics())
    keeping = asyncio.create_task(one.keep())
    await eventually_async(one.mine)
    following = asyncio.create_task(other.keep())
    await eventually_async(lambda: len(script.requests) > 12)
    assert one.mine()
    assert not other.mine()
    assert leases.lease is not None
    keeping.cancel()
    await eventually_async(other.mine)
    assert not one.mine()  # it stopped before the other began
    assert leases.lease["spec"]["leaseTransitions"] == 1
    await other.release()
    assert leases.lease["spec"]["holderIdentity"] == ""
    following.cancel()


async def test_others_wait_for_at_least_as_long_as_the_holder_writes(script: ScriptedApi, api: ApiServer) -> None:
    leases = Leases()
    script.answer = leases.answer
    one = Leadership(api, SETTINGS.model_copy(update={"lease_seconds": 4.5}), Metrics())
    keeping = asyncio.create_task(one.keep())
    await eventually_async(one.mine)
    keeping.cancel()
    assert leases.lease is not None
    assert leases.lease["spec"]["leaseDurationSeconds"] >= 4.5


async def test_the_end_of_a_holder_does_not_wait_for_a_busy_api_server(script: ScriptedApi, api: ApiServer) -> None:
    leases = Leases()
    script.answer = leases.answer
    one = Leadership(api, SETTINGS, Metrics())
    keeping = asyncio.create_task(one.keep())
    await eventually_async(one.mine)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    script.answer, script.refusals = None, [(503, {"Retry-After": "30"})] * 100
    async with asyncio.timeout(60):
        await one.release()
    assert not one.mine()


@pytest.mark.quiet
async def test_a_holder_that_cannot_renew_stops_in_time(script: ScriptedApi, api: ApiServer) -> None:
    leases = Leases()
    script.answer = leases.answer
    one = Leadership(api, SETTINGS, Metrics())
    tasks = [asyncio.create_task(one.keep()), asyncio.create_task(one.watch_end())]
    await eventually_async(one.taken.is_set)
    script.answer, script.refusals = None, [(403, {})] * 100
    began = time.monotonic()
    await eventually_async(lambda: not one.taken.is_set())
    assert time.monotonic() - began <= SETTINGS.lease_seconds + 1
    for task in tasks:
        task.cancel()


async def test_a_holder_that_lost_the_lease_says_so_when_it_takes_it_again(script: ScriptedApi, api: ApiServer) -> None:
    leases = Leases()
    script.answer = leases.answer
    one, taken = Leadership(api, SETTINGS, Metrics()), list[bool]()
    one.on_taken = lambda: taken.append(one.taken.is_set())
    tasks = [asyncio.create_task(one.keep()), asyncio.create_task(one.watch_end())]
    await eventually_async(one.taken.is_set)
    script.answer, script.refusals = None, [(403, {})] * 100
    await eventually_async(lambda: not one.taken.is_set())
    script.answer, script.refusals = leases.answer, []
    await eventually_async(one.taken.is_set)
    assert taken == [False, False], "twice, each time before it works"
    for task in tasks:
        task.cancel()
