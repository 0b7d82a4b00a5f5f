"""Fixtures for tests of commands: a root whose agent ends with the test, and CUDA programs under `orion run`."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.cli import agents, roots
from orion.node_agent.api.client import NoAgent
from tests.cli.orion_command import ORION, StartClient, end
from tests.processes import is_running
from tests.waiting import eventually

# A CUDA program: creates a context, prints a line, and runs until its standard input ends.
IDLE = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def root(socket_folder: Path) -> Iterator[Path]:
    """A folder for `--root`; commands start an agent there."""
    yield socket_folder
    try:
        agent = agents.ask(socket_folder).agent_process_id
    except NoAgent:
        return
    os.kill(agent, signal.SIGTERM)
    eventually(lambda: not is_running(agent), "the agent's end")


@pytest.fixture
def silent_agent(root: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that listens as the root's agent, and does not answer."""
    source = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()"
    source += "; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", source, str(root / roots.AGENT_SOCKET)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()
    (root / roots.AGENT_SOCKET).unlink(missing_ok=True)


@pytest.fixture
def client(root: Path) -> Iterator[StartClient]:
    """A function that starts a CUDA program under `orion run` and waits until it is ready; all end with the test."""
    ends = contextlib.ExitStack()

    def start(*options: str, source: str = IDLE) -> subprocess.Popen[str]:
        command = [*ORION, "run", "--simulated", "--root", str(root), *options, "--", sys.executable, "-c", source]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        ends.callback(end, process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
        return process

    with ends:
        yield start
