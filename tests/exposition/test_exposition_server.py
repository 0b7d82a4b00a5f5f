"""Metrics and probes over HTTP with hostile peers: a peer can lose only its own connections."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from orion.errors import Conflict
from orion.exposition import server as exposition
from orion.exposition.answers import Answers
from orion.exposition.server import ExpositionServer

LARGE = b"x" * (8 * 2**20)
""" Far more than the kernel buffers for a peer that does not read. """


class Served:
    """A server in this event loop, and the state from which it answers."""

    def __init__(self, address: str) -> None:
        self.unready = self.unhealthy = ""
        self.metrics: Callable[[], Awaitable[bytes]] = self._short
        self.server = ExpositionServer(
            Answers(lambda: self.metrics(), lambda: self.unready, lambda: self.unhealthy), address
        )

    async def _short(self) -> bytes:
        return b"orion_test 1\n"

    async def large(self) -> bytes:
        return LARGE

    async def open(self, request: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        writer.write(request)
        return reader, writer

    async def ask(self, path: str, method: str = "GET") -> tuple[int, str]:
        reader, writer = await self.open(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        with contextlib.closing(writer):
            async with asyncio.timeout(10):
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")  # until the server closes
        return int(head.split()[1]), body.decode()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    made = Served("127.0.0.1:0")
    await made.server.start()
    yield made
    await made.server.stop()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Wait until the server has ended a connection; return whether the server sent no data on it."""
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionError):
            return await reader.read() == b""
    return True


async def test_answers_depend_on_path_and_state(served: Served) -> None:
    assert await served.ask("/metrics") == (200, "orion_test 1\n")
    assert await served.ask("/metrics?x=1") == (200, "orion_test 1\n")
    assert await served.ask("/healthz") == await served.ask("/readyz") == (200, "ok\n")
    served.unready = "a list is missing — é"
    assert await served.ask("/readyz") == (503, "a list is missing — é\n")
    assert await served.ask("/healthz") == (200, "ok\n")
    served.unhealthy = "a socket is gone"
    assert await served.ask("/healthz") == (503, "a socket is gone\n")
    for method, path in (("GET", "/x"), ("GET", "//"), ("POST", "/metrics"), ("DELETE", "/healthz")):
        assert await served.ask(path, method) == (404, "GET /metrics, /healthz or /readyz\n")


async def test_an_internal_error_is_answered_and_logged_once(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> bytes:
        raise ValueError("no such GPU")

    served.metrics = broken
    assert (await served.ask("/metrics"))[0] == 500
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == [
        "metrics: an answer failed"
    ]


@pytest.mark.parametrize(
    "request_text",
    [
        b"\x16\x03\x01\x02\x00\x01\x00" + b"\0" * 64,
        b"\r\n\r\n\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000,
    ],
    ids=["tls", "empty", "half", "version", "length", "chunk", "path", "header", "headers"],
)
async def test_an_invalid_request_ends_its_connection_and_logs_nothing(
    served: Served, caplog: pytest.LogCaptureFixture, request_text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposition, "_HEAD_S", 0.2)
    await served.server.stop()
    await served.server.start()
    caplog.clear()
    reader, writer = await served.open(request_text)
    with contextlib.closing(writer):
        await ended(reader)
    assert await served.ask("/healthz") == (200, "ok\n")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("request_text", [b"", b"GET /metrics HTTP/1.1\r\nX: "], ids=["silent", "half a head"])
async def test_a_connection_without_a_complete_head_is_closed(
    request_text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposition, "_HEAD_S", 0.2)
    served = Served("127.0.0.1:0")
    await served.server.start()
    reader, writer = await served.open(request_text)
    with contextlib.closing(writer):
        assert await ended(reader)
    await served.server.stop()


async def test_a_peer_that_does_not_read_holds_neither_the_answer_nor_the_connection(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposition, "_CONNECTION_S", 0.5)
    served.metrics = served.large
    buffered: list[int] = []
    transports: list[asyncio.Transport] = []
    made = exposition._Bounded.connection_made

    def noted(self: exposition._Bounded, handler: object, transport: asyncio.Transport) -> None:
        transports.append(transport)
        made(self, handler, transport)  # type: ignore[arg-type]

    monkeypatch.setattr(exposition._Bounded, "connection_made", noted)
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", served.server.port))
        peer.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(10):
            while not transports or not transports[0].is_closing():
                buffered += [transport.get_write_buffer_size() for transport in transports]
                await asyncio.sleep(0.01)
    assert 0 < max(buffered) <= 256 * 1024
    monkeypatch.undo()  # the next answer may take its time
    status, text = await served.ask("/metrics")
    assert (status, len(text)) == (200, len(LARGE))


async def test_above_the_limit_a_peers_oldest_connection_ends(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "_OF_ONE_PEER_MAX", 3)
    async with contextlib.AsyncExitStack() as stack:
        opened = []
        for _ in range(4):
            reader, writer = await served.open()
            stack.callback(writer.close)
            opened.append((reader, writer))
        assert await ended(opened[0][0])
        for reader, writer in opened[1:]:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"


async def test_a_connection_serves_one_request(served: Served) -> None:
    reader, writer = await served.open(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
    with contextlib.closing(writer):
        received = b""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(10):
                while more := await reader.read(1024):
                    received += more
    assert received.count(b"HTTP/1.1 200 OK") == 1
    assert b"Connection: close" in received


async def test_stopping_waits_for_no_peer(served: Served) -> None:
    never = asyncio.Event()

    async def waits() -> bytes:
        await never.wait()
        return b""

    served.metrics = waits
    reader, writer = await served.open(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    with contextlib.closing(writer):
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await served.server.stop()
        assert await ended(reader)


async def test_an_address_in_use_raises_conflict(served: Served) -> None:
    address = f"127.0.0.1:{served.server.port}"
    with pytest.raises(Conflict, match=f"metrics cannot be served on {address}: "):
        await Served(address).server.start()
    for bad in ("192.0.2.1:0", "127.0.0.1:99999"):
        with pytest.raises(OSError, match=f"metrics cannot be served on {bad}: ") as error:
            await Served(bad).server.start()
        assert not isinstance(error.value, Conflict)
