"""Starts programs of Orion as processes that share the modules of one Python which has loaded them.

Loading takes up to 1 s of CPU time, most of what a start costs, and tests start thousands of agents, plugins and
drivers. So each of these processes is a fork of a server that has loaded the modules and done nothing else. Its id,
signals, streams and end are those of any process, but not its command line and its parent. Tests of those, and of the
start itself, start Python. With ORION_TEST_LOADED=0, all tests do. Python also starts what has other variables of those
that are read while Python starts and modules load.
"""

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from orion.hook.policy_table import BASELINES

ROOT = Path(__file__).resolve().parent.parent
BY_PYTHON = "ORION_TEST_LOADED"
""" If this variable is 0, Python starts the programs. """
_ENVIRONMENT = dict(os.environ)
""" The server's, from before any test. """


def start(
    module: str, arguments: list[str], output: IO[bytes], environment: Mapping[str, str] | None = None
) -> "Started":
    """Start `python -m <module> <arguments>`.

    Args:
        module: what runs as `__main__`.
        arguments: its command line.
        output: for its standard output and standard error.
        environment: all variables; None: this process's.
    """
    given = os.environ if environment is None else environment
    if os.environ.get(BY_PYTHON) == "0" or read_at_start(given) != read_at_start(_ENVIRONMENT):
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    return LoadedProcess(module, arguments, output, given)


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are read while Python starts and modules load."""
    return {name: value for name, value in environment.items() if name.startswith(("LD_", "PYTHON", "SSL_", BASELINES))}


class LoadedProcess:
    """A process that the server makes, with the part of Popen's interface that tests need; see `start`."""

    def __init__(self, module: str, arguments: list[str], output: IO[bytes], environment: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        request = {
            "module": module,
            "arguments": arguments,
            "folder": os.getcwd(),
            "environment": dict(environment),
        }
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.connect(_server())
        with open(os.devnull, "rb") as nothing:
            streams = [nothing.fileno(), output.fileno(), output.fileno()]
            socket.send_fds(self._server, [json.dumps(request).encode()], streams)
        self.pid = int.from_bytes(self._server.recv(4, socket.MSG_WAITALL))

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except BlockingIOError:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status as Popen does. Raises TimeoutError."""
        if self.returncode is None:
            self._server.settimeout(timeout)
            status = self._server.recv(4)
            assert status, "the server of loaded modules has ended"
            self.returncode = int.from_bytes(status, signed=True)
            self._server.close()
        return self.returncode


Started = LoadedProcess | subprocess.Popen[bytes]


@functools.cache
def _server() -> str:
    """Start the server of this process; return its address."""
    folder = tempfile.TemporaryDirectory(prefix="orion-", dir="/tmp")
    address = f"{folder.name}/server"
    command = [sys.executable, "-m", "tests.loaded_server", address]
    server = subprocess.Popen(command, cwd=ROOT, env=_ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    assert server.stdout.readline(), "the server cannot start"
    atexit.register(folder.cleanup)
    atexit.register(server.wait, 60)
    atexit.register(server.stdin.close)
    return address
