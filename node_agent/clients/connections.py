"""One client's connection: receives and sends whole messages with descriptors, and never blocks.

asyncio has no transport for SEQPACKET sockets, so this module uses ``add_reader`` and ``add_writer``. A tenant can
affect only the tenant's own connection: reading is rate-limited, the queue of outgoing messages is short, and a
message with unexpected descriptors ends the connection unread.
"""

import array
import asyncio
import contextlib
import errno
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence

from orion.hook import join
from orion.node_agent.clients import messages, rights
from orion.node_agent.pacing.token_bucket import TokenBucket
from orion.node_agent.pages import descriptors

_SEND_BUFFER = 16 * 1024
""" In bytes; holds about three messages. The limit is low because each unread message can hold 250 descriptors. """

_OUTBOX_MAX = 4
_MESSAGES_BURST, _MESSAGES_PER_SECOND = 32, 10.0
_RETRY_SECONDS = 0.02
_CREDENTIALS = struct.Struct("iII")

OnMessage = Callable[["Connection", bytes, list[int]], None]
OnEvent = Callable[["Connection"], None]


class Connection:
    """A connected SEQPACKET socket of a slot.

    Args:
        sock: connected; owned by this object.
        closer: of the slot.
        on_message: called with each message and its descriptors (only the pages of a returning client), which are
            closed afterwards.
        on_end: called once when the peer has closed the connection or violated the protocol; not called after `close`.
        on_writable: called when a full connection can send again.
    """

    def __init__(
        self,
        sock: socket.socket,
        closer: rights.Closer,
        on_message: OnMessage,
        on_end: OnEvent,
        on_writable: OnEvent,
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.process_id: int = _CREDENTIALS.unpack(credentials)[0]
        """ The process that connected, in the agent's pid namespace; 0: it is not visible there. """
        self.stuck_since: float | None = None
        """ Time of the event loop since which messages wait because the client does not read; None: none waits. """
        self._sock, self._closer = sock, closer
        self._loop = asyncio.get_running_loop()
        self._on_message, self._on_end, self._on_writable = on_message, on_end, on_writable
        self._outbox: deque[tuple[bytes, list[int]]] = deque()
        self._pace = TokenBucket(_MESSAGES_BURST, _MESSAGES_PER_SECOND, self._loop.time)
        self._timers: list[asyncio.TimerHandle] = []
        self._greeted = False
        self._watched = self._paused = self._blocked = False
        """ Whether the event loop has watched the socket; whether reading pauses; whether a full socket is watched. """
        self.closed = False

    def begin(self) -> None:
        """Read the first message if it is there, as it usually is: then the event loop need not watch the socket.

        Raises:
            OSError: the event loop cannot watch another socket.
        """
        self._readable()
        if not self.closed and not self._paused:
            self._watch()

    @property
    def full(self) -> bool:
        """Whether messages wait to be sent. Only then will `on_writable` be called."""
        return bool(self._outbox)

    @property
    def has_left(self) -> bool:
        """Whether the peer has closed the connection, so that it reads nothing more."""
        if self.closed:
            return True
        hanging_up = select.poll()
        hanging_up.register(self._sock, 0)
        return bool(hanging_up.poll(0))

    def send(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Send a message now, or when the socket can take it. The caller keeps ``fds``."""
        if self.closed:
            return
        if not self._outbox and self._sent(data, fds):
            return
        try:
            # A waiting message has its own descriptors: the caller may close its own, and their numbers may be reused.
            if len(self._outbox) >= _OUTBOX_MAX:
                raise BlockingIOError(errno.EAGAIN, "the peer does not read")
            self._outbox.append((data, [os.dup(fd) for fd in fds]))
        except OSError:
            self._loop.call_soon(self._end)

    def close(self) -> None:
        """Close the connection; the peer can still read what was sent."""
        if self.closed:
            return
        self.closed = True
        for timer in self._timers:
            timer.cancel()
        if self._watched:
            self._loop.remove_reader(self._sock.fileno())
        if self._blocked:
            self._loop.remove_writer(self._sock.fileno())
        self._closer.close_socket(self._sock)
        for _, fds in self._outbox:
            descriptors.close(fds)
        self._outbox.clear()

    def _watch(self) -> None:
        self._watched, self._paused = True, False
        self._loop.add_reader(self._sock.fileno(), self._readable)

    def _end(self) -> None:
        if not self.closed:
            self.close()
            self._on_end(self)

    def _readable(self) -> None:
        try:
            data, fds = self._receive()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._end()
            return
        if not data:
            self._end()
            return
        try:
            self._on_message(self, data, fds)
        finally:
            self._closer.close(fds)
        wait = self._pace.take()
        if wait and not self.closed:
            self._paused = True
            if self._watched:
                self._loop.remove_reader(self._sock.fileno())
            self._later(wait, self._watch)

    def _receive(self) -> tuple[bytes, list[int]]:
        """Read one message.

        Raises:
            OSError: there is none, or it has descriptors that it should not have, that would be closed too late, or
                that the agent cannot receive now.
        """
        size = join.MESSAGE_MAX + 1
        data, _, flags, _ = self._sock.recvmsg(size, 0, socket.MSG_PEEK)
        is_first, self._greeted = not self._greeted, True
        if not flags & socket.MSG_CTRUNC:
            return self._sock.recv(size), []
        if self._closer.busy or not (is_first and messages.returns(data)):
            raise OSError(errno.EPROTO, "the message has descriptors")
        data, fds, is_whole = rights.receive(self._sock, size)
        if not is_whole:
            self._closer.close(fds)
            raise OSError(errno.EMFILE, "the agent has no descriptors for those of the message; the client tries again")
        return data, fds

    def _flush(self) -> None:
        while self._outbox and not self.closed and self._sent(*self._outbox[0]):
            if self._outbox:
                descriptors.close(self._outbox.popleft()[1])
        if not self._outbox:
            self.stuck_since = None

    def _sent(self, data: bytes, fds: Sequence[int]) -> bool:
        """Try to send; return whether the message was sent. If the socket is full, `_flush` tries again later."""
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            self._sock.sendmsg([data], ancillary, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            return True
        except OSError as error:
            code = error.errno
        if code not in (errno.EAGAIN, errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM, errno.EINTR):
            # The reader also detects a peer that is gone, but the reader may be paused.
            self._loop.call_soon(self._end)
            return False
        self.stuck_since = self.stuck_since or self._loop.time()
        if code == errno.EAGAIN:
            self._blocked = True
            self._loop.add_writer(self._sock.fileno(), self._writable)
        else:
            self._later(_RETRY_SECONDS, self._writable)
        return False

    def _writable(self) -> None:
        self._blocked = False
        self._loop.remove_writer(self._sock.fileno())
        self._flush()
        if not self._outbox and not self.closed:
            self._on_writable(self)

    def _later(self, seconds: float, call: Callable[[], object]) -> None:
        self._timers = [timer for timer in self._timers if timer.when() > self._loop.time() and not timer.cancelled()]
        self._timers.append(self._loop.call_later(seconds, call))


def bind(directory: os.PathLike[str], name: str, mode: int, kind: socket.SocketKind) -> socket.socket:
    """Return a socket that is bound in ``directory``, and replaces a stale one.

    The path goes through /proc, because the address of a UNIX socket holds only 107 bytes.
    """
    folder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            sock.bind(f"/proc/self/fd/{folder}/{name}")
            os.chmod(name, mode, dir_fd=folder)
        except BaseException:
            sock.close()
            raise
    finally:
        os.close(folder)
    return sock


Identity = tuple[int, int]
""" Device and inode of a socket. """


def identity(path: os.PathLike[str]) -> Identity | None:
    """Return what distinguishes a socket from others at the same path; None: the path does not exist."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
