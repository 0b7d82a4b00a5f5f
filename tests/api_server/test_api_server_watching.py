"""The watch stays current through what API servers do: ends, cuts, forgotten versions, refusals, strange objects."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from orion.api_server.access import Access
from orion.api_server.paths import SHARES
from orion.api_server.requests import PAGE, ApiServer
from orion.api_server.watching import Watched
from orion.crds.governing import Shares
from orion.operator.webhook.cluster_facts import read_share
from tests.operator.scripted_api import ScriptedApi

DEADLINE_S = 10.0


def share(name: str, generation: int = 1, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team", "uid": name, "generation": generation}
    return {"kind": "GPUShare", "metadata": metadata, "spec": {"priority": "be", **spec}}


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    scripted = await ScriptedApi().start()
    yield scripted
    await scripted.stop()


@pytest.fixture
async def server(api: ScriptedApi) -> AsyncIterator[ApiServer]:
    connection = ApiServer(Access(api.url), "orion-test")
    yield connection
    await connection.close()


Watch = Watched[Any, Shares]


@pytest.fixture
async def watch(server: ApiServer) -> AsyncIterator[Watch]:
    watched = Watched(server, SHARES, read_share, Shares, by_generation=True)
    task = asyncio.create_task(watched.run())
    await asyncio.wait_for(watched.synced.wait(), DEADLINE_S)
    yield watched
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def names(watch: Watch) -> list[str]:
    return sorted(share.metadata.name for share in watch.of("team"))


async def begun(api: ScriptedApi, watches: int) -> None:
    await eventually(lambda: len(api.watches) == watches)


async def test_changes_are_followed(api: ScriptedApi, watch: Watch) -> None:
    await begun(api, 1)
    api.put(share("a"))
    api.put(share("b"))
    await eventually(lambda: names(watch) == ["a", "b"])
    api.put(share("a", generation=2, weight="3"))
    await eventually(lambda: watch.of("team").claiming("a", {})[0].spec.weight == "3")
    api.delete("b")
    await eventually(lambda: names(watch) == ["a"])
    assert api.lists == 1


async def test_a_list_comes_in_pages(api: ScriptedApi, server: ApiServer) -> None:
    for number in range(PAGE + 1):
        api.put(share(f"s{number}"))
    watched = Watched(server, SHARES, read_share, Shares, by_generation=True)
    task = asyncio.create_task(watched.run())
    await asyncio.wait_for(watched.synced.wait(), DEADLINE_S)
    assert (watched.count, api.lists) == (PAGE + 1, 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_status_is_not_parsed(api: ScriptedApi, watch: Watch) -> None:
    await begun(api, 1)
    api.put(share("a"))
    await eventually(lambda: names(watch) == ["a"])
    before = watch.of("team").claiming("a", {})[0]
    api.put({**share("a"), "status": {"pods": {"governed": 7}}})
    await eventually(lambda: watch.events == 2)
    assert watch.of("team").claiming("a", {})[0] is before


async def test_a_watch_that_is_cut_goes_on_where_it_was(api: ScriptedApi, watch: Watch) -> None:
    await begun(api, 1)
    api.put(share("a"))
    await eventually(lambda: names(watch) == ["a"])
    version = str(api.version)
    api.cut()
    await begun(api, 2)
    assert api.watches[1] == version
    assert api.lists == 1


async def test_bookmarks_keep_the_version_young(api: ScriptedApi, watch: Watch) -> None:
    await begun(api, 1)
    api.say("BOOKMARK", {"metadata": {"resourceVersion": "777"}})
    await eventually(lambda: watch.events == 1)
    api.cut()
    await begun(api, 2)
    assert api.watches[1] == "777"


@pytest.mark.parametrize("as_event", [True, False], ids=["event", "status"])
async def test_a_forgotten_version_means_a_new_list(api: ScriptedApi, watch: Watch, as_event: bool) -> None:
    await begun(api, 1)
    api.put(share("a"), silently=True)
    if as_event:
        api.say("ERROR", {"code": 410, "message": "too old resource version"})
    else:
        api.refusals.append((410, {}))
        api.cut()
    await eventually(lambda: names(watch) == ["a"])
    assert api.lists == 2


async def test_a_server_that_asks_for_patience_gets_it(api: ScriptedApi, watch: Watch) -> None:
    await begun(api, 1)
    api.refusals += [(429, {"Retry-After": "1"}), (503, {})]
    start = asyncio.get_running_loop().time()
    api.cut()
    await begun(api, 2)
    assert asyncio.get_running_loop().time() - start >= 1
    assert api.lists == 1
    assert watch.errors == 2


async def test_an_object_of_a_later_version_is_left_out(api: ScriptedApi, watch: Watch) -> None:
    await begun(api, 1)
    api.put(share("new", priority="platinum"))
    api.put(share("old"))
    await eventually(lambda: names(watch) == ["old"])


async def test_long_lines_are_read(api: ScriptedApi, watch: Watch) -> None:
    await begun(api, 1)
    large = share("large")
    large["metadata"]["annotations"] = {"note": "x" * 900_000}
    api.put(large)
    await eventually(lambda: names(watch) == ["large"])


async def test_what_it_does_not_understand_means_a_new_list(api: ScriptedApi, watch: Watch) -> None:
    await begun(api, 1)
    api.put(share("a"), silently=True)
    api.say("MODIFIED", {"no": "metadata"})
    await eventually(lambda: names(watch) == ["a"])
    assert api.lists == 2
