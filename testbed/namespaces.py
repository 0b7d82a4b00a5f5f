"""Makes and enters Linux namespaces without helper programs.

`unshare` and `nsenter` were rejected. To change the PID namespace they fork, so our child would be that program, and
signals, exit status and the death signal (tethered.py) would not reach the program behind it. The kernel lets a thread
choose the namespaces of its next children instead, so a child that starts in these contexts is our own. The mount
namespace is the exception: a process with threads may not change it, so the child changes it itself (tethered.py).
"""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

NEW_MOUNTS = 0x00020000
NEW_HOST_NAME = 0x04000000
NEW_PIDS = 0x20000000
NEW_NETWORK = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def unshare(kinds: int) -> None:
    """Put the calling thread into new namespaces of these kinds; a new PID namespace holds its next children only."""
    _checked(_libc.unshare(kinds), "unshare")


def enter(namespace: int, kind: int) -> None:
    """Put the calling thread into the namespace of a file descriptor; into a PID namespace, its next children only."""
    _checked(_libc.setns(namespace, kind), "setns")


@contextlib.contextmanager
def _kept(kind: int, name: str) -> Iterator[None]:
    """Restore the thread's namespace when the context ends."""
    here = os.open(f"/proc/thread-self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        enter(here, kind)
        os.close(here)


@contextlib.contextmanager
def children_in_new_pid_namespace() -> Iterator[None]:
    """Start this thread's next children in a new PID namespace; the first child is its process 1.

    When process 1 ends for any reason, the kernel kills the others. The thread cannot start threads in this context.
    """
    with _kept(NEW_PIDS, "pid"):
        unshare(NEW_PIDS)
        yield


@contextlib.contextmanager
def children_in_pid_namespace_of(pid: int) -> Iterator[None]:
    """Start this thread's next children in the PID namespace of a process; the thread cannot start threads here."""
    with _kept(NEW_PIDS, "pid"), _opened(f"/proc/{pid}/ns/pid") as namespace:
        enter(namespace, NEW_PIDS)
        yield


def identity_of_pid_namespace(process: int) -> int:
    """Return the kernel's number of a process's PID namespace."""
    return os.stat(f"/proc/{process}/ns/pid").st_ino


def living_in(pid_namespace: int) -> list[int]:
    """Return the running processes of a PID namespace, without zombies."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):  # the process has ended meanwhile
            if entry.isdigit() and identity_of_pid_namespace(int(entry)) == pid_namespace:
                state = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[0]
                found += [] if state in "ZX" else [int(entry)]
    return found


@contextlib.contextmanager
def network_of(path: str | Path) -> Iterator[None]:
    """Enter the network namespace at `path`, with this thread, its new sockets and its next children."""
    with _kept(NEW_NETWORK, "net"), _opened(path) as namespace:
        enter(namespace, NEW_NETWORK)
        yield


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[int]:
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield opened
    finally:
        os.close(opened)


class Network:
    """A new network namespace, with its interfaces, addresses, routes and rules.

    It has no name in the file system. It exists as long as this object, or a process in it.
    """

    def __init__(self) -> None:
        with _kept(NEW_NETWORK, "net"):
            unshare(NEW_NETWORK)
            self._open = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    @property
    def path(self) -> str:
        """The path at which any process finds the namespace while this object exists."""
        return f"/proc/{os.getpid()}/fd/{self._open}"

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """Enter it, as `network_of` does."""
        return network_of(self.path)

    def close(self) -> None:
        """Release the namespace."""
        os.close(self._open)
