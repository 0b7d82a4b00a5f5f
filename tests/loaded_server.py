"""Starts programs of Orion in a Python that has already loaded their modules: `tests/loaded.py` says why.

Each connection carries one request: a JSON object, and the file descriptors of the program's three streams. The answers
are the program's process id, and its exit status once it has ended. The server ends with the process that started it.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from typing import Any

from orion.cli.grpc_logging import log_errors_only

MODULES = (
    *("orion.cli.commands", "orion.node_agent.serving", "orion.node_agent.cluster.running"),
    *("orion.device_plugin.serving", "orion.dra_driver.serving"),
)
Request = dict[str, Any]


def main(address: str) -> Request | None:
    """Serve until standard input ends; in a process for a program, return the request."""
    log_errors_only()
    for module in MODULES:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # otherwise a collection in a program would copy the memory that it shares with this process
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    callers: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening, selectors.DefaultSelector() as selector:
        listening.bind(address)
        listening.listen(64)
        print("serves", flush=True)
        for source in (listening, woken, sys.stdin):
            selector.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    return None
                if key.fileobj is woken:
                    woken.recv(4096)
                    _report(callers)
                elif request := _start(listening.accept()[0], callers):
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for opened in (woken, wakes, *callers.values()):
                        opened.close()
                    return request


def _start(caller: socket.socket, callers: dict[int, socket.socket]) -> Request | None:
    """Fork; return the request in the new process, and None in this one."""
    text, streams, *_ = socket.recv_fds(caller, 1 << 20, 3)
    request: Request = json.loads(text)
    if pid := os.fork():
        callers[pid] = caller
        caller.sendall(pid.to_bytes(4))
    else:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        caller.close()
    for stream in streams:
        os.close(stream)
    return None if pid else request


def _report(callers: dict[int, socket.socket]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            with callers.pop(ended[0]) as caller, contextlib.suppress(OSError):
                caller.sendall(os.waitstatus_to_exitcode(ended[1]).to_bytes(4, signed=True))


if __name__ == "__main__" and (program := main(sys.argv[1])):
    os.chdir(program["folder"])
    sys.path[0] = program["folder"]
    os.environ.clear()
    os.environ.update(program["environment"])
    sys.argv = ["", *program["arguments"]]
    runpy.run_module(program["module"], run_name="__main__", alter_sys=True)
