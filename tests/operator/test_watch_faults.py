"""A watch that the API server refuses for a time goes on later. If kopf gives one up, the process ends at once."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from yarl import URL

from orion.errors import Unavailable
from orion.operator.reconciler import watch_errors
from orion.operator.reconciler.records import Named
from orion.operator.reconciler.serving import Reconciler
from orion.operator.reconciler.settings import ReconcilerSettings
from orion.shutdown import Shutdown
from tests.operator.scripted_api import ScriptedApi
from tests.waiting import DEADLINE, eventually_async

KINDS = {"pods": "Pod", "nodes": "Node", "gpushares": "GPUShare", "gpudevices": "GPUDevice"}
GROUP = {"name": "orion.gpu", "versions": [{"version": "v1alpha1"}], "preferredVersion": {"version": "v1alpha1"}}
SHARE = {
    "metadata": {"namespace": "n", "name": "late", "uid": "u", "resourceVersion": "101", "generation": 1},
    "spec": {"priority": "be"},
}


class Cluster:
    """An API server without objects that refuses watches of GPUShares with `refusal`, if it is not 0."""

    def __init__(self) -> None:
        self.refusal = self.refused = self.lists = 0
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        """ What the watch of GPUShares tells. """

    async def answer(self, request: web.Request) -> web.StreamResponse:
        plural = request.path.rsplit("/", 1)[1]
        if plural not in KINDS:
            return web.json_response(self._discovery(request.path))
        if "watch" not in request.query:
            self.lists += plural == "gpushares"
            return web.json_response({"metadata": {"resourceVersion": "100"}, "items": []})
        if self.refusal and plural == "gpushares":
            self.refused += 1
            return web.json_response({"kind": "Status", "message": "not now"}, status=self.refusal)
        return await self._watch(request, self.events if plural == "gpushares" else asyncio.Queue())

    async def _watch(self, request: web.Request, events: asyncio.Queue[dict[str, Any]]) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while (event := await events.get()).get("type") != "END":
            await response.write(json.dumps(event).encode() + b"\n")
            if event["type"] == "ERROR":
                break
        return response

    def _discovery(self, path: str) -> dict[str, Any]:
        if path in ("/api", "/apis"):
            return {"versions": ["v1"]} if path == "/api" else {"groups": [GROUP]}
        names = (
            ("pods", "nodes", "namespaces") if path == "/api/v1" else ("gpushares", "gpushares/status", "gpudevices")
        )
        verbs = {"singularName": "", "verbs": ["list", "watch", "patch"]}
        kinds = [(name, KINDS.get(name, name), name in ("pods", "gpushares")) for name in names]
        return {"resources": [{"name": name, "kind": kind, "namespaced": ns, **verbs} for name, kind, ns in kinds]}


class OnlyTasks:
    """In place of `Shutdown`, which ends the process of the tests."""

    def begin(self) -> None:
        pass

    def handle_signals(self) -> None:
        pass


@pytest.fixture
def cluster(script: ScriptedApi) -> Cluster:
    made = Cluster()
    script.answer = made.answer
    return made


@pytest.fixture
async def reconciler(script: ScriptedApi, cluster: Cluster, tmp_path: Path) -> AsyncIterator[Reconciler]:
    path = tmp_path / "kubeconfig"
    user = {"name": "me", "user": {"token": "t"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "me"}}
    clusters = [{"name": "c", "cluster": {"server": script.url}}]
    path.write_text(json.dumps({"current-context": "c", "contexts": [context], "clusters": clusters, "users": [user]}))
    path.chmod(0o600)
    made = Reconciler(ReconcilerSettings(kubeconfig=path, lease_namespace="n", elect=False, address=""))
    made._shutdown = cast("Shutdown", OnlyTasks())
    made._kopf.networking.error_backoffs = (0.01, 0.01)
    made._kopf.queueing.exit_timeout = 0.1
    yield made
    await made._api.close()


@pytest.fixture
async def running(reconciler: Reconciler) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(reconciler._run())
    await eventually_async(lambda: reconciler._known.is_set() or task.done())
    assert not task.done(), task.result()
    yield task
    task.cancel()
    await asyncio.wait({task}, timeout=DEADLINE)


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
async def test_a_watch_that_was_refused_for_long_goes_on(
    status: int, reconciler: Reconciler, running: asyncio.Task[None], cluster: Cluster
) -> None:
    cluster.refusal = status
    cluster.events.put_nowait({"type": "END"})
    await eventually_async(lambda: cluster.refused > 10 or running.done())  # kopf gives up after the third refusal
    assert not running.done()
    cluster.refusal = 0
    cluster.events.put_nowait({"type": "ADDED", "object": SHARE})
    await eventually_async(lambda: reconciler.state.share(Named("n", "late")) is not None)


@pytest.mark.parametrize("error", [{"code": 500, "message": "etcd has gone"}, {"code": 410}, {"message": "no code"}])
async def test_a_watch_that_ends_with_an_error_begins_with_a_list_again(
    error: dict[str, Any],
    reconciler: Reconciler,
    running: asyncio.Task[None],
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch_errors, "_PAUSE_S", (0.01, 0.01))
    for _ in range(3):
        before = cluster.lists
        cluster.events.put_nowait({"type": "ERROR", "object": {"kind": "Status", **error}})
        await eventually_async(lambda: cluster.lists > before or running.done())  # noqa: B023
        assert not running.done()
    cluster.events.put_nowait({"type": "ADDED", "object": SHARE})
    await eventually_async(lambda: reconciler.state.share(Named("n", "late")) is not None)


async def test_the_pause_after_errors_of_a_watch_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(random, "uniform", lambda _, most: most)
    errors = watch_errors.WatchErrors()
    for _ in range(8):
        await errors.pause(URL("https://x/apis/pods"), {"code": 500})
    assert slept == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30]
    await errors.pause(URL("https://x/apis/nodes"), {"code": 500})
    monkeypatch.setattr(watch_errors, "_FORGET_S", 0)
    await errors.pause(URL("https://x/apis/pods"), {"code": 500})
    assert slept[8:] == [0.8, 0.8]


async def test_events_before_an_error_do_not_wait_for_its_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def chunks(size: int) -> AsyncIterator[bytes]:
        yield b'{"type": "ADDED"}\n{"type": "ERROR", "object": {"code": 500}}\n{"type": '
        yield b'"LAST"}'

    monkeypatch.setattr(watch_errors, "_PAUSE_S", (DEADLINE, DEADLINE))
    answer: Any = SimpleNamespace(content=SimpleNamespace(iter_chunked=chunks), url=URL("https://x/apis/pods"))
    lines = watch_errors.WatchErrors().lines_of(answer).iter_chunked(1)
    assert await anext(lines) == b'{"type": "ADDED"}\n'
    monkeypatch.setattr(watch_errors, "_PAUSE_S", (0, 0))
    listed_again, last = [line async for line in lines]
    assert (json.loads(listed_again)["object"]["code"], json.loads(last)["type"]) == (410, "LAST")


async def test_the_process_ends_when_kopf_gives_a_watch_up(running: asyncio.Task[None], cluster: Cluster) -> None:
    cluster.events.put_nowait({"type": "ADDED"})
    await asyncio.wait({running}, timeout=DEADLINE)
    assert running.done()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("watcher")]  # asyncio waits for them
    with pytest.raises(Unavailable, match=r"the watches have ended: .*object"):
        running.result()
