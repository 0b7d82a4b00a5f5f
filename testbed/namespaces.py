"""Linux namespaces, made and entered without programs in between.

`unshare` and `nsenter` were refused: to change the PID namespace they fork, so our child would be them, and signals,
status and the tether to our life would end there. The kernel lets a thread say where its next children go; so a child
that is started within these contexts is our own, and in the other namespaces all the same. The mount namespace is the
exception: a process with threads may not change it, so the child does (tethered.py).
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
    """Put the calling thread into new namespaces of these kinds; for PIDs: its children from now on."""
    _checked(_libc.unshare(kinds), "unshare")


def enter(namespace: int, kind: int) -> None:
    """Put the calling thread into the namespace that a file descriptor stands for; for PIDs: its next children."""
    _checked(_libc.setns(namespace, kind), "setns")


@contextlib.contextmanager
def _kept(kind: int, name: str) -> Iterator[None]:
    """Put the thread back where it was when the context is left."""
    here = os.open(f"/proc/thread-self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        enter(here, kind)
        os.close(here)


@contextlib.contextmanager
def children_in_new_pid_namespace() -> Iterator[None]:
    """Children that this thread starts here: the first is process 1 of a new PID namespace, the others are in it.

    When process 1 ends, however it ends, the kernel kills all the others. No thread can be started here.
    """
    with _kept(NEW_PIDS, "pid"):
        unshare(NEW_PIDS)
        yield


@contextlib.contextmanager
def children_in_pid_namespace_of(pid: int) -> Iterator[None]:
    """Children that this thread starts here are in the PID namespace of a process; no thread can be started here."""
    with _kept(NEW_PIDS, "pid"), _opened(f"/proc/{pid}/ns/pid") as namespace:
        enter(namespace, NEW_PIDS)
        yield


def identity_of_pid_namespace(process: int) -> int:
    """Return the number that the kernel gives the PID namespace of a process."""
    return os.stat(f"/proc/{process}/ns/pid").st_ino


def living_in(pid_namespace: int) -> list[int]:
    """Return the processes of a PID namespace that run; not those that have ended and wait for their parents."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):  # it has gone meanwhile
            if entry.isdigit() and identity_of_pid_namespace(int(entry)) == pid_namespace:
                state = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[0]
                found += [] if state in "ZX" else [int(entry)]
    return found


@contextlib.contextmanager
def network_of(path: str | Path) -> Iterator[None]:
    """This thread, the sockets it makes and the children it starts are in the network namespace at `path`."""
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
    """A new network namespace; with it go its interfaces, addresses, routes and rules.

    It has no name anywhere: it lives as long as this object, or a process in it.
    """

    def __init__(self) -> None:
        with _kept(NEW_NETWORK, "net"):
            unshare(NEW_NETWORK)
            self._open = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    @property
    def path(self) -> str:
        """Where any process finds the namespace while this object lives."""
        return f"/proc/{os.getpid()}/fd/{self._open}"

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """Be in it, as `network_of`."""
        return network_of(self.path)

    def close(self) -> None:
        """Let go of it."""
        os.close(self._open)
