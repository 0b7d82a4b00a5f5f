"""The word by which the agent asks the processes of a slot to leave the GPU's memory."""

import contextlib
import mmap
import os
import socket
import threading
import time
from pathlib import Path
from typing import Self

from orion.errors import Unavailable
from orion.hook import join, layout

_EVERY = 50e-6
_AT = layout.offset(layout.GrantPage, "park")
_ANSWER_SECONDS = 5.0


class ParkWord:
    """A context manager that notes when the word of a slot first changes, as any process of the slot could see it.

    Args:
        directory: the slot's.
    """

    def __init__(self, directory: Path) -> None:
        self.changed: float | None = None
        """ When it changed, in seconds of CLOCK_MONOTONIC; None: it has not. """
        self._page = _shown(directory)
        self._before = self._now()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self._page.close()

    def _now(self) -> bytes:
        return self._page[_AT : _AT + 4]

    def _watch(self) -> None:
        while not self._ends.is_set():
            if self._now() != self._before:
                self.changed = time.monotonic()
                return
            time.sleep(_EVERY)


def _shown(directory: Path) -> mmap.mmap:
    """Return the grant page, as the agent shows it to a process that is no client."""
    head = join.Message(join.MESSAGE_MAGIC, join.MessageType.VIEW)
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        sock.settimeout(_ANSWER_SECONDS)
        sock.connect(str(directory / "agent.sock"))
        sock.send(bytes(join.View(head)))
        _, descriptors, _, _ = socket.recv_fds(sock, join.MESSAGE_MAX, 2)
        for each in descriptors:
            stack.callback(os.close, each)
        if not descriptors:
            raise Unavailable(f"the agent does not show the grant of {directory.name}")
        return mmap.mmap(descriptors[0], layout.PAGE_SIZE, mmap.MAP_SHARED, mmap.PROT_READ)
