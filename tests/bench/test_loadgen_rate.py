"""`orion loadgen` keeps its schedule at 1,000 requests a second, with the server on the same machine."""

import subprocess
import sys
from array import array

import pytest

from orion.bench.loadgen.recording import Recording
from orion.bench.loadgen.report import figures
from orion.bench.loadgen.requests import target
from orion.bench.loadgen.schedule import Schedule
from orion.bench.loadgen.sending import Sender
from tests.waiting import eventually

pytestmark = pytest.mark.quiet

SERVER = """
import asyncio
from aiohttp import web

async def answer(request):
    return web.Response(text="done")

async def serve():
    application = web.Application()
    application.router.add_get("/", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()

asyncio.run(serve())
"""
RATE, SECONDS = 1000, 3
USUAL_MS = 2.3  # on two cores that have nothing else to do


async def test_99_of_100_requests_are_sent_almost_when_they_are_due() -> None:
    schedule, recording = Schedule(array("d", (number / RATE for number in range(RATE * SECONDS)))), Recording()
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{int(eventually(server.stdout.readline))}/"
            await Sender(target(url, [], None, None), recording, timeout_s=60).run(schedule)
        finally:
            server.terminate()
    found = figures(recording, None, is_stream=False, is_stopped=False)
    assert (found["requests"], found["errors"]) == (RATE * SECONDS, 0)
    assert found["behind_ms"] < 10 * USUAL_MS
