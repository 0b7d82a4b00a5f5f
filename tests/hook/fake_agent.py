"""A fake agent: it listens on a slot's socket and answers as a test likes."""

import fcntl
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from orion.hook import layout
from tests.hook.harness import Machine

SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def page(machine: Machine, right_kind: int, **wrong: int) -> int:
    """Make a page as an agent does, except for the fields in `wrong`; return its descriptor."""
    fd = os.memfd_create("page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, wrong.get("size", layout.PAGE_SIZE))
    version = wrong.get("layout", layout.LAYOUT_VERSION)
    uuid = b"GPU-of-another-page" if "gpu" in wrong else machine.uuids[0].encode()
    header = layout.PageHeader(wrong.get("magic", layout.PAGE_MAGIC), version, wrong.get("kind", right_kind), uuid)
    os.pwrite(fd, bytes(header)[: wrong.get("size", layout.PAGE_SIZE)], 0)
    seal(fd, wrong.get("seals", SIZE_SEALS))
    return fd


def seal(fd: int, seals: int) -> None:
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)


class FakeAgent:
    """Listens on a slot's socket, and passes each connection to the test's function."""

    def __init__(self, folder: Path, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(folder / "agent.sock"))
        self._socket.listen(64)
        self._kept: list[socket.socket] = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._kept.append(connection)
            try:
                self._serve(connection)
            except OSError:
                continue

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in self._kept:
            connection.close()
