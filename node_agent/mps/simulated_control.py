"""The control daemon of a simulated GPU. It has the options and commands of NVIDIA's program that Orion uses.

The simulated driver (hook/sim/mps.c) connects to the socket `control` in CUDA_MPS_PIPE_DIRECTORY when a process makes
its first context, and keeps the connection. Its contexts then share one simulated context with all other connected
processes. There is no separate server: from the first client on, this process reports itself as its server. As with
NVIDIA's daemon, the end of this process ends the contexts of its clients.
"""

import contextlib
import os
import select
import signal
import socket
import sys
from pathlib import Path

from orion.node_agent.mps.folder import CONTROL_SOCKET

_COMMANDS = "control_privileged"


def main(arguments: list[str]) -> int:
    """Run the daemon (`-f`), or send it the commands from standard input; return the exit status."""
    pipe = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    return _serve(pipe) if "-f" in arguments else _ask(pipe, sys.stdin.read())


def _serve(pipe: Path) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    Path("/proc/self/comm").write_text("nvidia-cuda-mps-control"[:15])  # control.kill_leftovers finds it by this name
    commands, clients = _listen(pipe, _COMMANDS, 0o600), _listen(pipe, CONTROL_SOCKET, 0o666)
    connected: set[socket.socket] = set()
    served = False
    while True:
        for ready in select.select([commands, clients, *connected], [], [])[0]:
            if ready is commands:
                with contextlib.suppress(OSError), commands.accept()[0] as asker:
                    question = asker.recv(256).decode(errors="replace").split()
                    if question[:1] == ["quit"]:
                        asker.sendall(b"\n")
                        return 0
                    asker.sendall(f"{os.getpid() if served else ''}\n".encode())
            elif ready is clients:
                with contextlib.suppress(OSError):
                    connected.add(clients.accept()[0])
                    served = True
            elif not _is_connected(ready):
                connected.discard(ready)
                ready.close()


def _listen(pipe: Path, name: str, mode: int) -> socket.socket:
    folder = os.open(pipe, os.O_PATH | os.O_CLOEXEC)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(f"/proc/self/fd/{folder}/{name}")  # the address of a UNIX socket holds only 107 bytes
    os.close(folder)
    (pipe / name).chmod(mode)
    server.listen(256)
    return server


def _is_connected(client: socket.socket) -> bool:
    try:
        return bool(client.recv(256))
    except OSError:
        return False


def _ask(pipe: Path, question: str) -> int:
    try:
        folder = os.open(pipe, os.O_PATH | os.O_CLOEXEC)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(5)
            asking.connect(f"/proc/self/fd/{folder}/{_COMMANDS}")
            asking.sendall(question.encode())
            sys.stdout.write(asking.recv(4096).decode(errors="replace"))
    except OSError as error:
        print(f"Cannot find MPS control daemon process: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
