"""Descriptors that tenants send: they are received whole, and closed without a wait in the event loop.

To close a descriptor can take for ever: a lingering TCP connection waits for its peer, and a file for its file system.
Peer and file system may be the tenant's own. The kernel closes in the thread that makes the call, also what that thread
receives without room for it, and what lies unread in a socket that it closes.
"""

import array
import asyncio
import contextlib
import mmap
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable

from orion.hook import layout
from orion.node_agent.pages import descriptors

_SENT_AT_ONCE_MAX = 253
""" SCM_MAX_FD of the kernel. """

_ROOM = socket.CMSG_SPACE(_SENT_AT_ONCE_MAX * array.array("i").itemsize)
_BLOCK = 512
_RETRY_SECONDS = 0.1
""" How long to wait where the system has no more threads. """


def receive(sock: socket.socket, size: int) -> tuple[bytes, list[int], bool]:
    """Receive a message with its descriptors, which the caller owns; return also whether these are all of them."""
    data, ancillary, flags, _ = sock.recvmsg(size, _ROOM, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    return data, fds.tolist(), not flags & socket.MSG_CTRUNC


class Closer:
    """Closes a slot's sockets and the descriptors that its tenant sent.

    What may make a close wait is closed in turn by one thread. While it is busy, the slot's own sockets must not be
    read, so a tenant stops only its own slot. Each container of a slot has a closer of its own.

    Args:
        on_idle: called when the thread has closed everything.
    """

    def __init__(self, on_idle: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_idle = on_idle
        self._waiting: deque[int] = deque()
        self.busy = False

    def close(self, fds: Iterable[int]) -> None:
        """Close descriptors that the tenant sent."""
        for descriptor in fds:
            if _is_page(descriptor):
                descriptors.close([descriptor])
            else:
                self._close_later(descriptor)

    def close_socket(self, sock: socket.socket) -> None:
        """Close a socket; the peer can still read what was sent."""
        with contextlib.suppress(OSError):  # no peer is left
            sock.shutdown(socket.SHUT_RDWR)
        if _may_have_unread(sock):
            self._close_later(sock.detach())
        else:
            sock.close()

    def _close_later(self, descriptor: int) -> None:
        self._waiting.append(descriptor)
        if not self.busy:
            self.busy = True
            self._start()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._run, daemon=True, name="close").start()
        except RuntimeError:
            self._loop.call_later(_RETRY_SECONDS, self._start)

    def _run(self) -> None:
        while self._waiting:
            descriptors.close([self._waiting.popleft()])
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._ran)

    def _ran(self) -> None:
        if self._waiting:
            self._start()
        else:
            self.busy = False
            self._on_idle()


def _is_page(descriptor: int) -> bool:
    """Return whether this is a file in memory no larger than a page: it takes long to free a large one.

    A file of a file system in memory, which may be the tenant's own and end with it, cannot have these seals.
    """
    sealed = (descriptors.seals(descriptor) or 0) & descriptors.SEALS_OF_SIZE == descriptors.SEALS_OF_SIZE
    return sealed and os.fstat(descriptor).st_blocks * _BLOCK <= max(layout.PAGE_SIZE, mmap.PAGESIZE)


def _may_have_unread(sock: socket.socket) -> bool:
    """Return whether messages may be left in a socket that is shut down, so that no more can come.

    Unlike the end, a message has credentials, also an empty one. As there is no room for them, the kernel says so.
    """
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        _, _, flags, _ = sock.recvmsg(1, 0, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:  # one that listens: connections with messages may wait there
        return True
    return bool(flags & socket.MSG_CTRUNC)
