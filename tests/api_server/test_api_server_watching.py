"""A watch stays current if the API server ends or cuts it, expires versions, rejects requests or sends odd objects."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from orion.api_server.access import Access
from orion.api_server.paths import SHARES
from orion.api_server.requests import PAGE, ApiServer
from orion.api_server.watching import Watched
from orion.crds.decimals import Number
from orion.crds.governing import Shares
from orion.operator.webhook.cluster_facts import read_share
from tests.operator.scripted_api import ScriptedApi
from tests.waiting import DEADLINE, eventually_async


def share(name: str, generation: int = 1, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team", "uid": name, "generation": generation}
    return {"kind": "GPUShare", "metadata": metadata, "spec": {"priority": "be", **spec}}


@pytest.fixture
async def server(script: ScriptedApi) -> AsyncIterator[ApiServer]:
    connection = ApiServer(Access(script.url), "orion-test")
    yield connection
    await connection.close()


Watch = Watched[Any, Shares]


@pytest.fixture
async def watch(server: ApiServer) -> AsyncIterator[Watch]:
    watched = Watched(server, SHARES, read_share, Shares, by_generation=True)
    task = asyncio.create_task(watched.run())
    await asyncio.wait_for(watched.synced.wait(), DEADLINE)
    yield watched
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def names(watch: Watch) -> list[str]:
    return sorted(share.metadata.name for share in watch.of("team"))


async def begun(script: ScriptedApi, watches: int) -> None:
    await eventually_async(lambda: len(script.watches) == watches)


async def test_changes_are_followed(script: ScriptedApi, watch: Watch) -> None:
    await begun(script, 1)
    script.put(share("a"))
    script.put(share("b"))
    await eventually_async(lambda: names(watch) == ["a", "b"])
    script.put(share("a", generation=2, smShare=0.3))
    await eventually_async(lambda: watch.of("team").claiming("a", {})[0].spec.sm_share == Number(0.3))
    script.delete("b")
    await eventually_async(lambda: names(watch) == ["a"])
    assert script.lists == 1


def test_a_watch_that_has_not_begun_is_silent_since_it_was_made(server: ApiServer) -> None:
    assert Watched(server, SHARES, read_share, Shares, by_generation=True).silent_s < DEADLINE


async def test_a_list_comes_in_pages(script: ScriptedApi, server: ApiServer) -> None:
    for number in range(PAGE + 1):
        script.put(share(f"s{number}"))
    watched = Watched(server, SHARES, read_share, Shares, by_generation=True)
    task = asyncio.create_task(watched.run())
    await asyncio.wait_for(watched.synced.wait(), DEADLINE)
    assert (watched.count, script.lists) == (PAGE + 1, 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_status_is_not_parsed(script: ScriptedApi, watch: Watch) -> None:
    await begun(script, 1)
    script.put(share("a"))
    await eventually_async(lambda: names(watch) == ["a"])
    before = watch.of("team").claiming("a", {})[0]
    script.put({**share("a"), "status": {"pods": {"governed": 7}}})
    await eventually_async(lambda: watch.events == 2)
    assert watch.of("team").claiming("a", {})[0] is before


async def test_objects_are_not_gathered_again_if_what_is_kept_of_them_stays(
    script: ScriptedApi, server: ApiServer
) -> None:
    """A status of one of 40,000 GPUs changes every millisecond, and a review needs what their memory is at most."""
    gathered = 0

    def gather(objects: Iterable[str]) -> list[str]:
        nonlocal gathered
        gathered += 1
        return list(objects)

    script.put(share("a"))
    watched = Watched(server, SHARES, lambda plain: plain["metadata"]["name"], gather, by_generation=False)
    task = asyncio.create_task(watched.run())
    await eventually_async(lambda: watched.synced.is_set() and len(script.watches) == 1)
    assert watched.of("team") == ["a"]
    script.put({**share("a"), "status": {"pods": {"governed": 7}}})
    await eventually_async(lambda: watched.events == 1)
    assert (watched.of("team"), gathered) == (["a"], 1)
    script.put(share("b"))
    await eventually_async(lambda: watched.events == 2)
    assert (watched.of("team"), gathered) == (["a", "b"], 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_broken_watch_continues_at_its_version(script: ScriptedApi, watch: Watch) -> None:
    await begun(script, 1)
    script.put(share("a"))
    await eventually_async(lambda: names(watch) == ["a"])
    version = str(script.version)
    script.cut()
    await begun(script, 2)
    assert script.watches[1] == version
    assert script.lists == 1


async def test_bookmarks_keep_the_version_recent(script: ScriptedApi, watch: Watch) -> None:
    await begun(script, 1)
    script.say("BOOKMARK", {"metadata": {"resourceVersion": "777"}})
    await eventually_async(lambda: watch.events == 1)
    script.cut()
    await begun(script, 2)
    assert script.watches[1] == "777"


@pytest.mark.parametrize("as_event", [True, False], ids=["event", "status"])
async def test_an_expired_version_causes_a_new_list(script: ScriptedApi, watch: Watch, as_event: bool) -> None:
    await begun(script, 1)
    script.put(share("a"), silently=True)
    if as_event:
        script.say("ERROR", {"code": 410, "message": "too old resource version"})
    else:
        script.refusals.append((410, {}))
        script.cut()
    await eventually_async(lambda: names(watch) == ["a"])
    assert script.lists == 2


async def test_a_servers_retry_after_is_obeyed(script: ScriptedApi, watch: Watch) -> None:
    await begun(script, 1)
    script.refusals += [(429, {"Retry-After": "1"}), (503, {})]
    start = asyncio.get_running_loop().time()
    script.cut()
    await begun(script, 2)
    assert asyncio.get_running_loop().time() - start >= 1
    assert script.lists == 1
    assert watch.errors == 2


async def test_an_object_of_a_later_version_is_left_out(script: ScriptedApi, watch: Watch) -> None:
    await begun(script, 1)
    script.put(share("new", priority="platinum"))
    script.put(share("old"))
    await eventually_async(lambda: names(watch) == ["old"])


async def test_long_lines_are_read(script: ScriptedApi, watch: Watch) -> None:
    await begun(script, 1)
    large = share("large")
    large["metadata"]["annotations"] = {"note": "x" * 900_000}
    script.put(large)
    await eventually_async(lambda: names(watch) == ["large"])


async def test_an_unknown_event_causes_a_new_list(script: ScriptedApi, watch: Watch) -> None:
    await begun(script, 1)
    script.put(share("a"), silently=True)
    script.say("MODIFIED", {"no": "metadata"})
    await eventually_async(lambda: names(watch) == ["a"])
    assert script.lists == 2
