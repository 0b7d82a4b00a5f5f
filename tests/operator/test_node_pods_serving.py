"""The operator's server for agents: many connect at once, and its certificate changes. A fake API accepts tokens."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any, cast

from prometheus_client import CollectorRegistry

from orion.api_server.requests import ApiServer
from orion.node_pods import AUDIENCE, LENGTH_BYTES, frame
from orion.node_pods.node_pods_pb2 import Answer, Call, Pod, PodsOfNode
from orion.operator.node_pods.callers import NODE_NAME
from orion.operator.node_pods.serving import NodePodsServer
from orion.operator.node_pods.settings import NodePodsSettings
from tests.waiting import eventually_async

AGENTS = 150


class FakeApi:
    """An API server with one ConfigMap, where a token is the name of its node."""

    def __init__(self) -> None:
        self.data: dict[str, str] = {}

    async def get(self, path: str) -> dict[str, Any]:
        return {"data": self.data}

    async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.data = {key: value for key, value in (self.data | body["data"]).items() if value is not None}
        return {}

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        user = {"username": "system:serviceaccount:o:agent", "extra": {NODE_NAME: [body["spec"]["token"]]}}
        return {"status": {"authenticated": True, "audiences": [AUDIENCE], "user": user}}


class OnePod:
    def of(self, node: str) -> PodsOfNode:
        return PodsOfNode(pods=[Pod(name=f"pod-of-{node}")])

    def take_changed(self) -> tuple[set[str], bool]:
        return set(), False


@contextlib.asynccontextmanager
async def serving(api: FakeApi, certificate_seconds: float = 1_000) -> AsyncIterator[NodePodsServer]:
    settings = NodePodsSettings(
        address="127.0.0.1:0",
        name="localhost",
        namespace="o",
        agents="o/agent",
        replica="r",
        certificate_seconds=certificate_seconds,
    )
    server = NodePodsServer(settings, cast("ApiServer", api), OnePod(), CollectorRegistry())
    tasks = [asyncio.create_task(each) for each in (server.keep_published(), server.serve())]
    server.begin()
    await eventually_async(lambda: not server.waits_for)
    try:
        yield server
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def connected(port: int, certificate: str, node: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Call as an agent of a node does."""
    context = ssl.create_default_context(cadata=certificate)
    reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
    writer.write(frame(Call(token=node)))
    return reader, writer


async def answer(reader: asyncio.StreamReader) -> Answer:
    size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
    return Answer.FromString(await reader.readexactly(size))


async def first_pod(port: int, certificate: str, node: str) -> str:
    """Return the first pod that an agent of a node receives."""
    reader, writer = await connected(port, certificate, node)
    try:
        return str((await answer(reader)).pods.pods[0].name)
    finally:
        writer.transport.abort()


async def test_many_agents_connect_at_the_same_time() -> None:
    api = FakeApi()
    async with serving(api) as server:
        nodes = [f"n{number}" for number in range(AGENTS)]
        found = await asyncio.gather(*(first_pod(server.port, api.data["r"], node) for node in nodes))
        assert found == [f"pod-of-{node}" for node in nodes]


async def test_a_new_certificate_is_published_before_it_is_presented() -> None:
    api = FakeApi()
    async with serving(api, certificate_seconds=3) as server:
        first, port = api.data["r"], server.port
        await eventually_async(lambda: api.data["r"] != first)
        for _ in range(100):
            with contextlib.suppress(OSError):
                assert await first_pod(port, api.data["r"], "n") == "pod-of-n"
                break
            await asyncio.sleep(0.05)
        else:
            raise AssertionError("no agent reaches the server with the new certificate")
    assert api.data == {}
