"""Requests of `orion loadgen` to real servers: answers, errors, servers that stand still, streams."""

import asyncio
import socket
import subprocess
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from orion.bench.loadgen import recording as recordings
from orion.bench.loadgen.recording import Recording
from orion.bench.loadgen.requests import Completions, Target, target
from orion.bench.loadgen.schedule import Schedule
from orion.bench.loadgen.sending import Sender
from tests.bench.http_server import serving
from tests.waiting import eventually

LONG = 60.0


def _uniform(rate: float, seconds: float) -> Schedule:
    return Schedule(array("d", (number / rate for number in range(round(rate * seconds)))))


async def _run(what: str | Target, schedule: Schedule, timeout_s: float = LONG) -> tuple[Recording, Sender]:
    recording = Recording()
    found = target(what, [], None, None) if isinstance(what, str) else what
    sender = Sender(found, recording, timeout_s)
    await sender.run(schedule)
    return recording, sender


def _stream(url: str) -> Target:
    return target(url, [], None, Completions(url, None, "", [], seed=1))


async def _answer(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


async def test_each_request_is_sent_when_it_is_due_and_its_body_arrives(tmp_path: Path) -> None:
    body, seen = tmp_path / "body", list[tuple[str, bytes, str | None]]()
    body.write_text('{"x": 1}')

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.method, await request.read(), request.headers.get("X-Run")))
        return web.Response(text="done")

    with serving(answer) as url:
        recording, sender = await _run(target(url, ["X-Run: 7"], body, None), _uniform(200.0, 0.25))
    assert recording.status == [200] * 50
    assert seen == [("POST", b'{"x": 1}', "7")] * 50
    assert list(recording.due_s) == [number / 200.0 for number in range(50)]
    assert all(recording.due_s[row] <= recording.sent_s[row] <= recording.end_s[row] for row in range(50))
    assert (sender.is_stopped, sender.open, sender.reasons) == (False, 0, {})


async def test_a_server_that_stands_still_delays_every_request_that_is_due_meanwhile() -> None:
    stall_s, requests = 0.6, 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal requests
        requests += 1
        if requests == 20:
            time.sleep(stall_s)  # the whole server, as a collection of garbage or a lock would do it
        return web.Response()

    with serving(answer) as url:
        recording, _ = await _run(url, _uniform(100.0, 1.0))
    latencies = [recording.end_s[row] - recording.due_s[row] for row in range(100)]
    assert recording.status == [200] * 100
    assert max(latencies) >= stall_s - 0.01
    assert sum(each > 0.1 for each in latencies) >= 45  # a closed loop would have one
    still_sent = [row for row in range(100) if recording.sent_s[row] < 0.19 + stall_s]
    assert len(still_sent) > 40


@pytest.mark.parametrize("status", [302, 404, 500, 503])
async def test_a_status_that_is_no_success_is_an_error_and_is_kept(status: int) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": "/"})

    with serving(answer) as url:
        recording, _ = await _run(url, _uniform(100.0, 0.05))
    assert recording.status == [status] * 5
    assert all(map(recording.is_error, range(5)))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_refused_connection_is_an_error(host: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        recording, sender = await _run(f"http://{host}:{unused.getsockname()[1]}/", _uniform(100.0, 0.05))
    assert recording.status == [recordings.REFUSED] * 5
    assert "Cannot connect" in sender.reasons[recordings.REFUSED]


async def test_a_request_that_gets_no_answer_in_time_is_an_error_and_ends_the_run() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as silent:
        recording, _ = await _run(f"http://127.0.0.1:{silent.getsockname()[1]}/", _uniform(100.0, 0.05), 0.2)
    assert recording.status == [recordings.TIMEOUT] * 5
    assert all(found >= 0.2 for row in range(5) if (found := recording.latency_s(row)) is not None)


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfour"])
async def test_a_connection_that_closes_too_early_is_an_error(sent: bytes) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        writer.close()

    async with await asyncio.start_server(cut, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        recording, _ = await _run(_post(f"http://127.0.0.1:{port}/"), _uniform(100.0, 0.03))
    assert recording.status == [recordings.CLOSED] * 3


def _post(url: str) -> Target:
    return Target(url, "POST", {}, lambda row: b"x", is_stream=False)


async def test_an_answer_that_is_no_http_is_an_error() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        recording, _ = await _run(f"http://127.0.0.1:{port}/", _uniform(100.0, 0.02))
    assert all(map(recording.is_error, range(2)))


async def test_a_name_that_cannot_have_an_address_is_an_error() -> None:
    recording, sender = await _run(f"http://{'x' * 70}.invalid/", _uniform(10.0, 0.1))
    assert recording.status == [recordings.FAILED]
    assert sender.reasons[recordings.FAILED]


async def test_a_stopped_run_sends_nothing_more_and_waits_for_no_answer() -> None:
    sender: Sender | None = None

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/":
            await asyncio.sleep(LONG)
        return web.Response()

    with serving(answer) as url:
        recording = Recording()
        sender = Sender(target(url, [], None, None), recording, LONG)
        running = asyncio.create_task(sender.run(_uniform(100.0, LONG)))
        while len(recording) < 5:
            await asyncio.sleep(0)
        sender.stop()
        await running
    assert sender.is_stopped
    assert recording.due_s[4] <= recording.stopped_s < LONG
    assert 5 <= len(recording) < 6000
    assert set(recording.status) == {recordings.UNANSWERED}
    assert not any(map(recording.is_error, range(len(recording))))


def _events(*pieces: bytes, close: bool = False) -> Callable[[web.Request], object]:
    async def answer(request: web.Request) -> web.StreamResponse:
        fields = await request.json()
        assert fields["stream"] is True
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0.02)
        if close and request.transport is not None:
            request.transport.close()
        return response

    return answer


async def test_the_tokens_of_a_stream_are_timed() -> None:
    pieces = (
        b': ping\r\n\r\ndata: {"choices": [{"delta": {"role": "assistant"}}]}\r\n\r\n',
        b'data: {"choices": [{"delta": {"content": "\xf0\x9f',
        b'\x98\x80"}}]}\r\n\r\n',
        b'data: {"choices": [{"delta": {"content": "b"}}]}\r\n\r\n',
        b'data: {"choices": [], "usage": {"completion_tokens": 3}}\r\n\r\ndata: [DONE]\r\n\r\n',
    )
    with serving(_events(*pieces)) as url:  # type: ignore[arg-type]
        recording, _ = await _run(_stream(url), Schedule([0.0]))
    assert recording.status == [200]
    assert recording.tokens[0] == 3
    first_s, last_s = recording.first_token_s(0), recording.last_s[0]
    assert first_s is not None
    assert 0.04 <= first_s <= last_s - 0.01
    assert recording.per_token_s(0) == pytest.approx((last_s - recording.first_s[0]) / 2)


@pytest.mark.parametrize(
    ("pieces", "close", "status"),
    [
        ([b'data: {"choices": [{"text": "a"}]}\n\n'], True, recordings.CLOSED),
        ([b'data: {"error": {"message": "out of memory"}}\n\n'], False, recordings.BROKEN),
        ([b"<html>"], False, recordings.BROKEN),
        ([], False, recordings.BROKEN),
    ],
)
async def test_a_stream_that_breaks_is_an_error(pieces: list[bytes], close: bool, status: str) -> None:
    with serving(_events(*pieces, close=close)) as url:  # type: ignore[arg-type]
        recording, _ = await _run(_stream(url), Schedule([0.0]))
    assert recording.status == [status]


async def test_an_error_in_place_of_a_stream_keeps_its_status() -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "no such model"}}, status=404)

    with serving(refuse) as url:
        recording, sender = await _run(_stream(url), Schedule([0.0]))
    assert recording.status == [404]
    assert sender.reasons == {"404": '{"error": {"message": "no such model"}}'}


async def test_pythons_own_server_of_files_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x" * 100_000)
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            port = eventually(server.stdout.readline).rpartition("http://")[2].rpartition(":")[2].partition("/")[0]
            found, _ = await _run(f"http://127.0.0.1:{port}/file", _uniform(50.0, 0.4))
            missing, _ = await _run(f"http://127.0.0.1:{port}/nothing", _uniform(50.0, 0.1))
            posted, _ = await _run(_post(f"http://127.0.0.1:{port}/file"), _uniform(50.0, 0.1))
        finally:
            server.terminate()
    assert found.status == [200] * 20
    assert missing.status == [404] * 5
    assert posted.status == [501] * 5
