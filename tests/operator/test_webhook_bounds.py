"""No sender can use up what the webhook has: each bound on a running webhook."""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from orion.api_server.access import Access
from orion.operator.listening import listener
from orion.operator.webhook import bodies, connections
from orion.operator.webhook.bounds import CONNECTIONS, Amounts, Peer
from orion.operator.webhook.decisions import Decision
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.reviews import Request
from orion.operator.webhook.serving import Listening, Webhook
from testbed.authority import Authority
from tests.operator.scripted_api import ScriptedApi
from tests.operator.test_admission_serving import Served, pod, question
from tests.waiting import eventually_async


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", Amounts(total=8, each=3, reserve=2, little=1))
    monkeypatch.setattr(bodies, "BYTES", Amounts(total=600_000, each=200_000, reserve=100_000, little=10_000))
    monkeypatch.setattr(bodies, "BODY_S", 0.3)


@contextlib.asynccontextmanager
async def running(script: ScriptedApi, folder: Path, *api_servers: str) -> AsyncIterator[Served]:
    authority = Authority(folder / "authority")
    authority.server("webhook", ["127.0.0.1"]).write(folder, "tls")
    networks = tuple(map(ipaddress.ip_network, api_servers))
    files = (folder / "tls.crt", folder / "tls.key")
    listening = Listening("127.0.0.1", 0, *files, "127.0.0.1:0", leave_s=0.0, finish_s=0.0, api_servers=networks)
    webhook, started = Webhook(Access(script.url, None), Defaults(), listening), asyncio.Event()
    serving = asyncio.create_task(webhook.run(lambda _: started.set()))
    await asyncio.wait_for(started.wait(), 10)
    found = Served(webhook, folder, authority)
    await eventually_async(lambda: webhook.admission.ready)
    try:
        yield found
    finally:
        await found.session.close()
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


class Sender:
    """Opens connections from a loopback address."""

    def __init__(self, served: Served, address: str = "127.0.0.2") -> None:
        self._served, self._address = served, address
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        trusted = ssl.create_default_context(cafile=str(self._served.authority.certificate_path))
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._served.webhook.port, ssl=trusted, local_addr=(self._address, 0)
        )
        self._writers.append(writer)
        return reader, writer

    async def ask(self, head: str, body: bytes = b"") -> tuple[int, str, bool]:
        """Send a request; return the status, the text and whether the connection was closed after it."""
        reader, writer = await self.connect()
        writer.write(f"POST /admit HTTP/1.1\r\nHost: w\r\n{head}\r\n\r\n".encode() + body)
        return await answer(reader)

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, str, bool]:
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).decode().lower()
    fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
    text = (await reader.readexactly(int(fields["content-length"]))).decode()
    return int(head.split()[1]), text, fields.get("connection") == "close"


async def refusals(served: Served, what: str) -> bool:
    return f'orion_webhook_refused_total{{what="{what}"}}' in (await served.get("metrics"))[1]


async def test_a_peer_with_too_many_connections_gets_no_more_and_others_do(
    small: None, script: ScriptedApi, tmp_path: Path
) -> None:
    async with running(script, tmp_path) as served, Sender(served) as sender:
        for _ in range(3):
            await sender.connect()
        with pytest.raises((OSError, ssl.SSLError)):
            await sender.connect()
        assert await refusals(served, "connections")
        assert (await served.review(pod()))["allowed"]
        sender.close()
        await eventually_async(lambda: served.webhook.connections.account.total == 1)
        await sender.connect()


async def test_more_connections_at_once_than_a_peer_may_have_are_served_in_turn(
    script: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_WAIT_S", 300.0)
    body = question(pod())

    async def status_of(sender: Sender) -> int:
        async with sender:
            return (await sender.ask(f"Content-Length: {len(body)}", body))[0]

    async with running(script, tmp_path) as served:
        count = CONNECTIONS.each + 16
        assert await asyncio.gather(*(status_of(Sender(served)) for _ in range(count))) == [200] * count


async def test_a_peer_with_too_many_waiting_connections_gets_no_more(
    script: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WAITING", Amounts(total=8, each=3, reserve=2, little=1))
    async with running(script, tmp_path) as served:
        waiting = served.webhook.connections
        async with waiting._turns.turn(Peer("10.1.0.1", False)):
            opened = [await asyncio.open_connection("127.0.0.1", served.webhook.port) for _ in range(4)]
            await eventually_async(lambda: waiting.count == 3)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(opened[3][0].read(), 20) == b""
            assert await refusals(served, "connections")
            assert waiting.account.total == 0
        for _, writer in opened:
            writer.transport.abort()
        await eventually_async(lambda: waiting.count == 0)


async def test_a_webhook_that_ends_serves_connections_that_wait(
    script: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = question(pod())
    async with running(script, tmp_path) as served, Sender(served) as sender:
        monkeypatch.setattr(served.webhook, "_listening", replace(served.webhook._listening, finish_s=60.0))
        async with served.webhook.connections._turns.turn(Peer("10.1.0.1", False)):
            asking = asyncio.create_task(sender.ask(f"Content-Length: {len(body)}", body))
            await eventually_async(lambda: served.webhook.connections.count == 1)
            leaving = asyncio.create_task(served.webhook._leave())
            await eventually_async(lambda: served.webhook.connections._listener._socket is None)
            assert not (await asyncio.wait({leaving}, timeout=0.1))[0]
        status, _, closed = await asking
        assert (status, closed) == (200, True)
        sender.close()
        await asyncio.wait_for(leaving, 60)


async def test_api_servers_that_are_known_use_the_reserve(small: None, script: ScriptedApi, tmp_path: Path) -> None:
    running_webhook = running(script, tmp_path, "127.0.0.1/32")
    async with running_webhook as served, Sender(served) as one, Sender(served, "127.0.0.3") as other:
        for sender in (one, one, one, other):
            await sender.connect()
        await other.connect()
        with pytest.raises((OSError, ssl.SSLError)):
            await other.connect()
        assert (await served.review(pod()))["allowed"]


async def test_a_connection_without_tls_is_closed_and_gives_its_place_back(
    small: None, script: ScriptedApi, tmp_path: Path
) -> None:
    async with running(script, tmp_path) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.webhook.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 20)
        writer.transport.abort()
        await eventually_async(lambda: served.webhook.connections.account.total == 0)
        assert await refusals(served, "handshake")


async def test_a_handshake_that_never_begins_ends(
    small: None, script: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_HANDSHAKE_S", 0.2)
    async with running(script, tmp_path) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.webhook.port)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.transport.abort()
        await eventually_async(lambda: served.webhook.connections.account.total == 0)


async def test_connections_that_wait_when_the_listener_closes_are_served(script: ScriptedApi, tmp_path: Path) -> None:
    async with running(script, tmp_path) as served:
        port = served.webhook.port
        # Nothing is awaited, so the webhook accepts none of them before it closes the listener.
        waiting = [socket.create_connection(("127.0.0.1", port)) for _ in range(3 * listener._ACCEPTED_AT_ONCE)]
        served.webhook.connections.close_listener()
        trusted = ssl.create_default_context(cafile=str(served.authority.certificate_path))
        for each in waiting:
            _, writer = await asyncio.open_connection(sock=each, ssl=trusted, server_hostname="127.0.0.1")
            writer.transport.abort()


def test_an_api_server_gives_up_before_the_webhook_does() -> None:
    handshake_s = 10.0  # TLSHandshakeTimeout of its client
    assert min(connections._WAIT_S, connections._HANDSHAKE_S) >= handshake_s
    review_s = 30.0  # the most that timeoutSeconds of a webhook's configuration may be
    assert review_s <= bodies.BODY_S


async def test_bytes_beyond_a_peers_part_get_429_and_others_are_answered(
    small: None, script: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 60.0)
    async with running(script, tmp_path) as served, Sender(served) as sender:
        _, writer = await sender.connect()
        writer.write(b"POST /admit HTTP/1.1\r\nHost: w\r\nContent-Length: 150000\r\n\r\n{")
        await eventually_async(lambda: served.webhook._bodies.account.total == 150_000)
        status, text, closed = await sender.ask("Content-Length: 150000")
        assert (status, closed) == (429, True)
        assert "too many bytes from 127.0.0.2" in text
        assert (await served.review(pod()))["allowed"]
        assert await refusals(served, "bytes")
        sender.close()
        await eventually_async(lambda: served.webhook._bodies.account.total == 0)


@pytest.mark.parametrize(
    ("head", "status", "what"),
    [
        ("Content-Length: 200001", 413, "size"),
        ("Transfer-Encoding: chunked", 411, "length"),
        ("Content-Length: 100", 408, "body_time"),
    ],
)
async def test_a_body_that_is_too_large_or_slow_or_of_unknown_length_is_refused(
    small: None, script: ScriptedApi, tmp_path: Path, head: str, status: int, what: str
) -> None:
    async with running(script, tmp_path) as served, Sender(served) as sender:
        assert (await sender.ask(head))[::2] == (status, True)
        assert await refusals(served, what)
        assert served.webhook._bodies.account.total == 0


async def test_a_compressed_body_is_not_expanded(small: None, script: ScriptedApi, tmp_path: Path) -> None:
    async with running(script, tmp_path) as served, Sender(served) as sender:
        status, text, _ = await sender.ask("Content-Encoding: gzip\r\nContent-Length: 4", b"\x1f\x8b\x08\x00")
        assert (status, text.partition(":")[0]) == (400, "not an AdmissionReview of admission.k8s.io/v1")


async def test_a_body_that_is_slow_to_parse_is_read_only_from_an_api_server(
    script: ScriptedApi, tmp_path: Path
) -> None:
    given = pod()
    given["spec"]["many"] = [[] for _ in range(40_000)]
    body: Any = question(given)
    async with running(script, tmp_path) as served:
        status, text = await served.post(body)
        assert status == 413
        assert "40002 times the character [" in text
        assert "webhook.apiServerCIDRs" in text
        assert await refusals(served, "fields")
    async with running(script, tmp_path, "127.0.0.0/8") as served:
        assert (await served.review(given))["allowed"]


async def test_a_large_review_that_waits_too_long_gets_429(
    script: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "TURN_S", 0.2)
    given = pod()
    given["spec"]["long"] = "x" * bodies.LARGE
    async with running(script, tmp_path) as served:
        large = served.webhook._bodies._large_turns
        async with large.turn(Peer("10.1.0.1", False)):
            url = f"https://127.0.0.1:{served.webhook.port}/admit"
            async with served.session.post(url, data=question(given)) as refused:
                assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
                assert await refused.text() == "too many large reviews are waiting; try again"
            assert (await served.review(pod()))["allowed"]  # small reviews have turns of their own
        monkeypatch.setattr(bodies, "TURN_S", 60.0)
        assert (await served.review(given))["allowed"]


async def test_a_peer_that_does_not_read_its_answers_is_disconnected(
    script: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_SEND_S", 0.2)
    given = pod()
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "chat-7d9", "uid": "u", "controller": True}
    given["metadata"] |= {"labels": {"pod-template-hash": "7d9"}, "ownerReferences": [owner]}
    large = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x" * 2**20]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [large]}}
    given["spec"]["affinity"] = {"nodeAffinity": required}  # the patch repeats the term
    body = question(given)
    async with running(script, tmp_path, "127.0.0.0/8") as served, Sender(served) as sender:
        _, writer = await sender.connect()
        head = f"POST /admit HTTP/1.1\r\nHost: w\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        writer.write((head + body) * 20)
        await eventually_async(lambda: served.webhook._bodies.account.total > 0)
        await eventually_async(lambda: served.webhook.connections.account.total == 0)
        assert await refusals(served, "unread")


async def test_the_decision_about_a_large_review_is_part_of_its_turn(
    script: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = pod()
    given["spec"]["long"] = "x" * bodies.LARGE
    async with running(script, tmp_path) as served:
        admission, took = served.webhook.admission, list[float]()
        decide = admission.decide

        def slowly(request: Request) -> Decision:
            time.sleep(0.2)  # a decision takes the loop's time
            return decide(request)

        monkeypatch.setattr(admission, "decide", slowly)

        def pause(seconds: float) -> float:
            took.append(seconds)
            return 0.0

        monkeypatch.setattr(served.webhook._bodies._large_turns, "_pause", pause)
        assert (await served.review(given))["allowed"]
        assert took[0] >= 0.2
