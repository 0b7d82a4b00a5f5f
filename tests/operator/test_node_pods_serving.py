"""The operator's server for agents: many connect at once, and its certificate changes. A fake API accepts tokens."""

import _ssl
import asyncio
import contextlib
import ctypes
import resource
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from ctypes import c_int, c_void_p
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from orion.api_server.requests import ApiServer
from orion.node_pods import AUDIENCE, LENGTH_BYTES, frame
from orion.node_pods.node_pods_pb2 import Answer, Call, Pod, PodsOfNode
from orion.operator.node_pods import serving as serving_module
from orion.operator.node_pods.callers import NODE_NAME
from orion.operator.node_pods.serving import _CALL_MAX, _NEW_OF_ADDRESS_MAX, NodePodsServer
from orion.operator.node_pods.settings import NodePodsSettings
from tests.waiting import DEADLINE, eventually_async

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


class HangingApi(FakeApi):
    """Does not answer while `hangs` is set."""

    hangs = False

    async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.hangs:
            await asyncio.Event().wait()
        return await super().patch(path, body)


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


async def connected(
    port: int, certificate: str, node: str, address: str = "127.0.0.1"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Call as an agent of a node does, from a loopback address."""
    context = ssl.create_default_context(cadata=certificate)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost", local_addr=(address, 0)
    )
    writer.write(frame(Call(token=node)))
    return reader, writer


async def answer(reader: asyncio.StreamReader) -> Answer:
    size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
    return Answer.FromString(await reader.readexactly(size))


async def first_pod(port: int, certificate: str, node: str, address: str = "127.0.0.1") -> str:
    """Return the first pod that an agent of a node receives."""
    reader, writer = await connected(port, certificate, node, address)
    try:
        return str((await answer(reader)).pods.pods[0].name)
    finally:
        writer.transport.abort()


async def reached(port: int, api: FakeApi, node: str) -> str:
    """Do the same with the certificate that is published, which may be replaced before the server presents it."""
    async with asyncio.timeout(DEADLINE):
        while True:
            with contextlib.suppress(OSError):
                return await first_pod(port, api.data["r"], node)
            await asyncio.sleep(0.05)


async def test_many_agents_connect_at_the_same_time() -> None:
    api = FakeApi()
    async with serving(api) as server:
        nodes = [f"n{number}" for number in range(AGENTS)]
        calls = [first_pod(server.port, api.data["r"], node, f"127.0.1.{1 + at}") for at, node in enumerate(nodes)]
        found = await asyncio.gather(*calls)
        assert found == [f"pod-of-{node}" for node in nodes]


async def test_one_address_cannot_take_all_places_of_new_connections() -> None:
    api = FakeApi()
    async with serving(api) as server:
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(_NEW_OF_ADDRESS_MAX)]
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await reader.read() == b""  # closed at once
        assert await first_pod(server.port, api.data["r"], "n", "127.0.0.2") == "pod-of-n"
        for _, each in [*silent, (reader, writer)]:
            each.close()
        await eventually_async(lambda: not server._new)
        assert await first_pod(server.port, api.data["r"], "n") == "pod-of-n"


async def test_some_addresses_together_cannot_take_all_places_of_new_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving_module, "_NEW_MAX", 8)
    api = FakeApi()
    async with serving(api) as server:
        port, certificate = server.port, api.data["r"]
        greedy = [await silent_connection(port, f"127.0.0.{2 + at % 2}") for at in range(8)]
        assert await first_pod(port, certificate, "n") == "pod-of-n"
        assert await greedy[0][0].read() == b""  # the oldest one of the address that has the most
        single = [await silent_connection(port, f"127.0.1.{1 + at}") for at in range(8)]
        await eventually_async(lambda: len(server._new) == 8)
        refused = await silent_connection(port, "127.0.2.1")
        assert await refused[0].read() == b""  # addresses with one connection keep it
        for _, each in [*greedy, *single, refused]:
            each.close()


async def test_the_server_raises_the_limit_of_descriptors() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, before[1]))
    try:
        async with serving(FakeApi()):
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_agents_leave_descriptors_for_requests_to_the_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "raise_limit", lambda: serving_module._DESCRIPTORS_OF_OTHERS + 3)
    api = FakeApi()
    async with serving(api) as server:
        silent = [await silent_connection(server.port, "127.0.0.2") for _ in range(4)]
        assert await silent[3][0].read() == b""
        assert len(server._tasks) == 3
        for _, each in silent:
            each.close()


async def silent_connection(port: int, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect from a loopback address, and send nothing."""
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(Call(token="")), "UNAUTHENTICATED"),
        ((_CALL_MAX + 1).to_bytes(LENGTH_BYTES, "big"), "INVALID_ARGUMENT"),
        ((3).to_bytes(LENGTH_BYTES, "big") + b"\xff\xff\xff", "INVALID_ARGUMENT"),
    ],
    ids=["no token", "too large", "no call"],
)
async def test_a_call_that_is_none_is_refused_with_a_reason(sent: bytes, code: str) -> None:
    api = FakeApi()
    async with serving(api) as server:
        context = ssl.create_default_context(cadata=api.data["r"])
        reader, writer = await asyncio.open_connection("localhost", server.port, ssl=context)
        writer.write(sent)
        refusal = (await answer(reader)).refusal
        assert (refusal.code, bool(refusal.reason)) == (code, True)
        assert await reader.read() == b""
        writer.close()


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11) or not hasattr(_ssl, "__file__"),
    reason="the test finds OpenSSL's object in CPython's socket object; checked for 3.11 with a shared _ssl",
)
async def test_a_connection_that_only_changes_its_keys_is_ended() -> None:
    api = FakeApi()
    async with serving(api) as server:
        await asyncio.to_thread(change_keys, server.port, api.data["r"])
        assert await first_pod(server.port, api.data["r"], "n") == "pod-of-n"


def change_keys(port: int, certificate: str) -> None:
    """Send key updates of TLS until the peer ends the connection. Python has no function for that."""
    library = ctypes.CDLL(_ssl.__file__)
    library.SSL_key_update.argtypes, library.SSL_do_handshake.argtypes = [c_void_p, c_int], [c_void_p]
    context = ssl.create_default_context(cadata=certificate)
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost") as connection:
        after_its_head = 3 * ctypes.sizeof(c_void_p)  # PySSLSocket: the object's head, the socket, and SSL *
        tls = c_void_p.from_address(id(connection._sslobj) + after_its_head)  # type: ignore[attr-defined]
        for _ in range(50_000):
            if library.SSL_key_update(tls, 0) != 1 or library.SSL_do_handshake(tls) != 1:
                return
    raise AssertionError("the connection takes 50,000 key updates")


async def test_a_call_ends_when_its_agent_closes_the_connection() -> None:
    api = FakeApi()
    async with serving(api) as server:
        reader, writer = await connected(server.port, api.data["r"], "n")
        await answer(reader)
        assert len(server._streams) == 1
        writer.close()
        await eventually_async(lambda: not server._streams and not server._tasks)


async def test_the_server_ends_while_the_api_server_does_not_answer() -> None:
    api = HangingApi()
    async with asyncio.timeout(60), serving(api):
        api.hangs = True


async def test_a_new_certificate_does_not_end_calls() -> None:
    api = FakeApi()
    async with serving(api, certificate_seconds=3) as server:
        first = api.data["r"]
        reader, writer = await connected(server.port, first, "n")
        await answer(reader)
        await eventually_async(lambda: api.data["r"] != first)
        assert await reached(server.port, api, "m") == "pod-of-m"
        assert len(server._streams._of_node["n"]) == 1
        writer.close()


async def test_a_new_certificate_is_published_before_it_is_presented() -> None:
    api = FakeApi()
    async with serving(api, certificate_seconds=3) as server:
        first, port = api.data["r"], server.port
        await eventually_async(lambda: api.data["r"] != first)
        assert await reached(port, api, "n") == "pod-of-n"
    assert api.data == {}
