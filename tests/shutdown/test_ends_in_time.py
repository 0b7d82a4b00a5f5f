"""Services of which one part does not stop: each ends in time, and says which part that was."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from orion.shutdown import SHUTDOWN_S
from tests.waiting import DEADLINE, eventually

VALUES = Path(__file__).parents[2] / "charts/orion/values.yaml"

BEGINNING = """
import asyncio, contextlib, functools, logging, os, sys, threading
from orion.shutdown import Shutdown

logging.basicConfig(stream=sys.stderr)

async def deaf():
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)

def never_returns():
    threading.Event().wait()

async def blocks():
    never_returns()

def nobody_reads():
    os.set_blocking(2, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(2, b"x" * 4096)
    os.set_blocking(2, True)
"""
SERVICE = """
async def serve():
    shutdown = Shutdown({seconds})
    shutdown.handle_signals()
    part = asyncio.create_task({part})
    print("serves", flush=True)
    await shutdown.wait()
    {end}

asyncio.run(serve())
"""
# How the device plugin and the DRA driver run, and how the agent runs.
PROGRAM = """
from orion.injection import program

class Deaf:
    async def run(self):
        print("serves", flush=True)
        await deaf()

program.Shutdown = functools.partial(Shutdown, 1)
program.run_until_signal("deaf", Deaf)
"""
AGENT = """
from orion.node_agent import serving

@contextlib.asynccontextmanager
async def deaf_agent(settings):
    print("serves", flush=True)
    try:
        yield
    finally:
        await deaf()

serving.Shutdown, serving.serving = functools.partial(Shutdown, 1), deaf_agent
serving.run(None)
"""
FAILING = """
async def serve():
    shutdown = Shutdown(30)

    async def fails():
        try:
            await asyncio.sleep(0)
            raise ValueError("a part is broken")
        finally:
            {begin}
            await asyncio.sleep(0.2)
            print("has given back its lease", flush=True)

    await shutdown.run(fails(), "ends by a signal")

asyncio.run(serve())
"""


def ended(service: str, paused_s: float = 0) -> tuple[int, str]:
    """Send SIGTERM to a service; return its exit status and what it said.

    With `paused_s`, the service stands still for a time once it has begun its end, as on a machine that is suspended.
    """
    with subprocess.Popen(
        [sys.executable, "-c", BEGINNING + service], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "serves\n"
            process.send_signal(signal.SIGTERM)
            if paused_s:
                assert process.stdout.readline() == "ends\n"
                process.send_signal(signal.SIGSTOP)
                until = time.monotonic() + paused_s
                eventually(lambda: time.monotonic() >= until)
                process.send_signal(signal.SIGCONT)
            said = process.communicate(timeout=DEADLINE)[1]
        finally:
            process.kill()
    return process.returncode, said


@pytest.mark.parametrize(
    ("part", "end", "named"),
    [
        ("deaf()", "part.cancel(); await part", ["task deaf (deaf, <string>:", "task serve"]),
        ("deaf()", "pass", ["task deaf (deaf, <string>:"]),
        ("blocks()", "pass", ["MainThread in wait, threading.py:", "task serve"]),
        ("deaf()", "never_returns()", ["MainThread in wait, threading.py:", "task serve"]),
        ("asyncio.to_thread(never_returns)", "pass", ["asyncio_0 in wait, threading.py:"]),
        ("asyncio.sleep(0)", "threading.Thread(target=never_returns, name='stuck').start()", ["stuck in wait"]),
    ],
    ids=["deaf", "deaf-left-to-asyncio", "blocked-before-the-signal", "blocked-loop", "executor", "thread"],
)
def test_a_part_that_does_not_stop_is_named_and_the_process_ends(part: str, end: str, named: list[str]) -> None:
    status, said = ended(SERVICE.format(seconds=1, part=part, end=end))
    assert status == 1, said
    assert "the process has not ended within 1 s and ends itself; what did not stop: " in said
    assert all(each in said for each in named), said


@pytest.mark.parametrize("service", [PROGRAM, AGENT], ids=["program", "agent"])
def test_what_runs_on_a_node_ends_in_time(service: str) -> None:
    status, said = ended(service)
    assert status == 1, said
    assert "ends itself; what did not stop: task " in said


def test_a_service_that_stops_in_time_says_nothing() -> None:
    assert ended(SERVICE.format(seconds=DEADLINE, part="asyncio.sleep(0)", end="await asyncio.sleep(0.1)")) == (0, "")


def test_a_service_whose_log_nobody_reads_ends() -> None:
    service = BEGINNING + SERVICE.format(seconds=1, part="deaf()", end="nobody_reads(); never_returns()")
    with subprocess.Popen([sys.executable, "-c", service], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"serves\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE) == 1
        finally:
            process.kill()


@pytest.mark.parametrize("begin", ["pass", "shutdown.begin()"])
def test_an_error_of_the_service_ends_the_process_once_all_is_given_back(begin: str) -> None:
    command = [sys.executable, "-c", BEGINNING + FAILING.format(begin=begin)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert process.returncode == 1
    assert process.stdout == "has given back its lease\n"
    assert process.stderr.endswith("ValueError: a part is broken\n")


def test_time_in_which_the_machine_stands_still_does_not_count() -> None:
    end = "print('ends', flush=True); await asyncio.sleep(0.3)"
    assert ended(SERVICE.format(seconds=2, part="asyncio.sleep(0)", end=end), paused_s=3) == (0, "")


def test_a_service_ends_itself_before_kubernetes_kills_it() -> None:
    values = yaml.safe_load(VALUES.read_text())
    graces = [values[each]["terminationGracePeriodSeconds"] for each in ("operator", "node", "draDriver")]
    assert min(graces) >= SHUTDOWN_S + 5
