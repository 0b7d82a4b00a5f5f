"""Second looks at a namespace's shares: however many shares and refused pods it has, others are answered meanwhile."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from orion.crds.share import GPUShare
from orion.operator.webhook import admitting, handling
from orion.operator.webhook.decisions import Decision
from tests.api_server.test_api_server_watching import share
from tests.operator.scripted_api import ScriptedApi
from tests.operator.test_admission_serving import Served, pod, question
from tests.operator.test_webhook_bounds import running
from tests.waiting import eventually_async

MANY = 120


@pytest.fixture
async def served(script: ScriptedApi, tmp_path: Path) -> AsyncIterator[Served]:
    async with running(script, tmp_path) as found:
        await eventually_async(lambda: len(script.watches) == 2)  # else a watch could get an answer meant for a look
        yield found


class Looks:
    """The lists that the webhook asks for. Each answer is of the moment of its question, and waits for `go`."""

    def __init__(self, script: ScriptedApi) -> None:
        self.seen: list[web.Request] = []
        self.go = asyncio.Event()
        self._script = script
        script.answer = self._answer

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        found = await self._script._answer(request)
        await self.go.wait()
        return found


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the shares that have been read."""
    names, read = list[str](), GPUShare.read

    def counted(plain: dict[str, Any], what: str) -> GPUShare:
        names.append(plain["metadata"]["name"])
        return read(plain, what)

    monkeypatch.setattr(GPUShare, "read", counted)
    return names


async def refused(served: Served) -> dict[str, Any]:
    return await served.review(pod("be", share="late"))


def asked(served: Served) -> float | None:
    return served.webhook.metrics.registry.get_sample_value("orion_webhook_second_looks_total")


async def test_reviews_share_the_next_look_and_never_one_that_has_begun(script: ScriptedApi, served: Served) -> None:
    looks = Looks(script)
    first = asyncio.create_task(refused(served))
    await eventually_async(lambda: len(looks.seen) == 1)
    script.put(share("late"), silently=True)
    others = [asyncio.create_task(refused(served)) for _ in range(5)]
    await eventually_async(lambda: asked(served) == 6)
    assert len(looks.seen) == 1
    looks.go.set()
    assert not (await first)["allowed"]
    assert all([(await each)["allowed"] for each in others])
    assert len(looks.seen) == 2


async def test_namespaces_do_not_wait_for_each_others_looks(script: ScriptedApi, served: Served) -> None:
    looks = Looks(script)
    both = [asyncio.create_task(served.review(pod("be", share="late"), namespace=each)) for each in ("team", "other")]
    await eventually_async(lambda: len(looks.seen) == 2)
    looks.go.set()
    assert not any([(await each)["allowed"] for each in both])


async def test_a_look_after_one_that_failed_works_again(script: ScriptedApi, served: Served) -> None:
    looks = Looks(script)
    script.refusals.append((403, {}))
    first = asyncio.create_task(served.post(question(pod("be", share="late"))))
    await eventually_async(lambda: len(looks.seen) == 1)
    other = asyncio.create_task(refused(served))
    await eventually_async(lambda: asked(served) == 2)
    looks.go.set()
    assert (await first)[0] == 500
    assert "late, which does not exist" in (await other)["status"]["message"]


@contextlib.contextmanager
def passes(reads: list[str]) -> Iterator[list[int]]:
    """How many shares had been read at each pass of the event loop."""
    counts = [len(reads)]

    async def follow() -> None:
        while True:
            counts.append(len(reads))
            await asyncio.sleep(0)

    following = asyncio.create_task(follow())
    yield counts
    following.cancel()


async def test_the_loop_goes_on_while_shares_are_read(script: ScriptedApi, served: Served, reads: list[str]) -> None:
    for number in range(MANY):
        script.put(share(f"s{number}"), silently=True)
    with passes(reads) as counts:
        assert not (await refused(served))["allowed"]
    assert len(reads) == MANY
    assert max(after - before for before, after in itertools.pairwise(counts)) <= 10


async def test_shares_that_the_watch_knows_are_not_read_again(
    script: ScriptedApi, served: Served, reads: list[str]
) -> None:
    for number in range(MANY):
        script.put(share(f"s{number}", selector={"matchLabels": {"app": "x"}}))
    await eventually_async(lambda: served.webhook.admission.shares.count == MANY)
    script.put(share("s0", generation=2), silently=True)
    script.put({**share("s1", priority="hp"), "status": {"gpus": 1}}, silently=True)  # of the same generation
    reads.clear()
    given = pod("be")
    given["metadata"]["labels"] = {"app": "x"}
    found = (await served.review(given))["status"]["message"]
    assert found.startswith("the GPUShares s1 and s10 and s100")
    assert reads == ["s0"]


async def test_the_second_decision_has_a_turn_too(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = list[bool]()

    def seen(*given: Any) -> Decision:
        turns.append(served.webhook._bodies._turns._taken)
        return admitting.admit(*given)

    monkeypatch.setattr(handling, "admit", seen)
    assert not (await refused(served))["allowed"]
    assert turns == [True, True]
