"""A hostile client, as root, in a be slot: `python hostile_client.py SLOT_DIRECTORY SECONDS`.

It joins as a client does, then attacks the socket and every page that it receives, again and again. It prints each
attack that succeeded; if all is well, it prints nothing. With SLOT_DIRECTORY "-" it attacks nothing and uses
as much CPU time. The comparison shows which delays of its neighbours come from its CPU time alone.
"""

import array
import contextlib
import ctypes
import fcntl
import mmap
import os
import random
import signal
import socket
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from orion.hook import join, layout
from tests.node_agent.protocol_client import ProtocolClient, Refused, connect, head, hello

PUNCH = 0x1 | 0x2  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
libc = ctypes.CDLL(None)


def reached(fd: int, what: str, own: bool) -> list[str]:
    """Try to change a page's size and content; return what worked."""
    worked = []

    def attempt(name: str, works: bool) -> None:
        if works:
            worked.append(f"{name} of {what}")

    attempt("truncate", _succeeds(os.ftruncate, fd, 0))
    attempt("grow", _succeeds(os.ftruncate, fd, 1 << 30))
    attempt("punch", libc.fallocate(fd, PUNCH, ctypes.c_long(0), ctypes.c_long(4096)) == 0)
    attempt("write", _succeeds(os.pwrite, fd, b"\xff" * 64, 64))
    attempt("writable mapping", _succeeds(lambda: mmap.mmap(fd, 4096).close()))
    attempt("seal", _succeeds(fcntl.fcntl, fd, fcntl.F_ADD_SEALS, 0))
    with contextlib.suppress(OSError):
        again = os.open(
            f"/proc/self/fd/{fd}", os.O_RDWR | os.O_NONBLOCK
        )  # its lease lasts longer than the client's connection
        attempt("write after reopening", _succeeds(os.pwrite, again, b"\xff" * 64, 64))
        attempt("truncate after reopening", _succeeds(os.ftruncate, again, 0))
        attempt("mapping after reopening", _succeeds(lambda: mmap.mmap(again, 4096).close()))
        os.close(again)
    for lock in (fcntl.LOCK_EX, fcntl.LOCK_SH):
        with contextlib.suppress(OSError):
            fcntl.flock(fd, lock | fcntl.LOCK_NB)
            fcntl.lockf(fd, lock | fcntl.LOCK_NB)
    for lease in (fcntl.F_WRLCK, fcntl.F_RDLCK):
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETLEASE, lease)
    return [] if own else worked


def _succeeds(function: object, *arguments: object) -> bool:
    try:
        function(*arguments)  # type: ignore[operator]
    except (OSError, ValueError):
        return False
    return True


def attack_pages(directory: Path) -> list[str]:
    """Join, and try every attack on every page."""
    found = []
    with contextlib.suppress(OSError, EOFError, Refused), ProtocolClient(directory).join(ready=False) as client:
        # Between WELCOME and READY the client's own pages are not sealed against writers: overwrite them, and keep a
        # second mapping.
        second = mmap.mmap(client.busy.fd, 4096)
        client.ready()
        client.receive_message()
        pages = [("policy", client.policy.fd), ("grant", client.grant.fd)]
        pages += [(f"hp's busy page {place}", fd) for place, fd in client.neighbours.items()]
        for name, fd in pages:
            found += reached(fd, name, own=False)
            kind = layout.PageHeader.from_buffer_copy(os.pread(fd, 64, 0)).kind
            expected = {"policy": layout.PageKind.POLICY, "grant": layout.PageKind.GRANT}.get(
                name, layout.PageKind.BUSY
            )
            if kind != expected:
                found.append(f"{name} is of kind {kind}")
        for page in (client.busy, client.record):
            reached(page.fd, "its own page", own=True)
            for offset in range(0, 4096, 8):
                struct.pack_into("<Q", page.memory, offset, random.getrandbits(64))
        second[:] = os.urandom(4096)
        second.close()
        client.suspect((0, 1))
    return found


def attack_socket(directory: Path) -> None:
    """Send garbage, half messages, floods of messages, and descriptors."""
    zero = os.open("/dev/zero", os.O_RDONLY)
    with contextlib.suppress(OSError), connect(directory, 0.5) as sock:
        sock.sendmsg([b"\xff" * 40], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [zero] * 200))])
    with contextlib.suppress(OSError, EOFError, Refused), ProtocolClient(directory).join() as client:
        client.sock.setblocking(False)
        for _ in range(200):
            client.sock.send(bytes(join.Suspect(head(join.MessageType.SUSPECT), 0, 1)))
        for length in range(200):
            client.sock.send(os.urandom(length))
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
        sock.connect(str(directory / "notices.sock"))
        sock.sendmsg([b"\xff" * 40], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [zero] * 200))])
        for length in range(200):  # until the kernel holds no more
            sock.send(os.urandom(length))
    os.close(zero)


def attack_joins(directory: Path, count: int) -> None:
    """Connect and send HELLO without end."""
    for _ in range(count):
        with contextlib.suppress(OSError, EOFError, Refused):
            ProtocolClient(directory).join().close()


def shout_hello(directory: Path, count: int) -> None:
    """Send HELLO this often, without waiting for an answer."""
    address = str(directory / "agent.sock")
    for _ in range(count):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.setblocking(False)
            sock.connect(address)
            sock.send(hello())


class Over(BaseException):
    """Raised when the time is up, at any point of an attack."""


def main() -> None:
    """Attack for the given time."""
    found: set[str] = set()

    def end(*_: object) -> None:
        raise Over

    for ignored in (signal.SIGPIPE, signal.SIGIO):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, end)
    place = sys.argv[1]
    try:
        signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]))
        while place == "-":
            sum(range(10000))
        while True:
            found.update(attack_pages(Path(place)))
            attack_socket(Path(place))
            attack_joins(Path(place), 5)
            shout_hello(Path(place), 50)
    except Over:
        print("\n".join(sorted(found)))


if __name__ == "__main__":
    main()
