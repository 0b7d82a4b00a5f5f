"""A hostile client, even as root, can write only its own pages."""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import time
from collections.abc import Callable

import pytest

from orion.hook import join, layout
from tests.node_agent.conftest import AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient, Refused

ADD_SEALS, GET_SEALS = 1033, 1034
SEAL_SEAL, SEAL_SHRINK, SEAL_GROW, SEAL_WRITE, SEAL_FUTURE_WRITE = 1, 2, 4, 8, 16
ALL = SEAL_SEAL | SEAL_SHRINK | SEAL_GROW | SEAL_FUTURE_WRITE
PUNCH_HOLE, KEEP_SIZE, COLLAPSE = 2, 1, 8
MADV_REMOVE = 9

REFUSALS = (errno.EPERM, errno.EBADF, errno.EINVAL, errno.EACCES, errno.EOPNOTSUPP)

libc = ctypes.CDLL(None, use_errno=True)


def fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)):
        raise OSError(ctypes.get_errno(), "fallocate")


def map_writable(fd: int) -> None:
    mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE).close()


def protect_writable(fd: int) -> None:
    libc.mmap.restype = ctypes.c_void_p
    address = libc.mmap(None, ctypes.c_size_t(4096), mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
    assert address != ctypes.c_void_p(-1).value
    try:
        if libc.mprotect(ctypes.c_void_p(address), 4096, mmap.PROT_READ | mmap.PROT_WRITE):
            raise OSError(ctypes.get_errno(), "mprotect")
        ctypes.memset(address, 0xFF, 4096)
    finally:
        libc.munmap(ctypes.c_void_p(address), 4096)


def remove_by_mapping(fd: int) -> None:
    libc.mmap.restype = ctypes.c_void_p
    address = libc.mmap(None, ctypes.c_size_t(4096), mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
    try:
        if libc.madvise(ctypes.c_void_p(address), 4096, MADV_REMOVE):
            raise OSError(ctypes.get_errno(), "madvise")
    finally:
        libc.munmap(ctypes.c_void_p(address), 4096)


ATTACKS: dict[str, Callable[[int], object]] = {
    "shrink": lambda fd: os.ftruncate(fd, 0),
    "grow": lambda fd: os.ftruncate(fd, 1 << 30),
    "allocate": lambda fd: fallocate(fd, 0, 0, 1 << 30),
    "punch": lambda fd: fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 0, 4096),
    "collapse": lambda fd: fallocate(fd, COLLAPSE, 0, 4096),
    "write": lambda fd: os.pwrite(fd, b"\xff" * 4096, 0),
    "write past": lambda fd: os.pwrite(fd, b"\xff", 4096),
    "map": map_writable,
    "protect": protect_writable,
    "remove": remove_by_mapping,
    "seal": lambda fd: fcntl.fcntl(fd, ADD_SEALS, SEAL_WRITE),
}


def all_ways_in(fd: int, stack: contextlib.ExitStack) -> list[int]:
    """Return the descriptor itself, and a new descriptor of the same file for each mode that the kernel allows."""
    ways = [fd]
    for flags in (os.O_RDWR, os.O_RDONLY, os.O_RDWR | os.O_TRUNC):
        with contextlib.suppress(OSError):
            again = os.open(f"/proc/self/fd/{fd}", flags)
            stack.callback(os.close, again)
            ways.append(again)
    return ways


@pytest.mark.parametrize("attack", ATTACKS)
def test_only_its_writer_can_write_a_page(agent: AgentProcess, attack: str) -> None:
    with ProtocolClient(agent.slot("hp-0")).join() as hp, ProtocolClient(agent.slot("be-0")).join() as be:
        be.receive_until({hp.key})
        pages = {"policy": be.policy, "grant": be.grant, "busy": be.busy, "record": be.record, "own busy": hp.busy}
        fds = {name: page.fd for name, page in pages.items()} | {"neighbour": be.neighbours[hp.key]}
        eventually(lambda: all(fcntl.fcntl(fd, GET_SEALS) & ALL == ALL for fd in fds.values()), "all pages are sealed")
        before = {name: os.pread(fd, 8192, 0) for name, fd in fds.items()}
        with contextlib.ExitStack() as stack:
            for name, fd in fds.items():
                for way in all_ways_in(fd, stack):
                    with pytest.raises(OSError) as refused:  # noqa: PT011 - the error number is checked below
                        ATTACKS[attack](way)
                    assert refused.value.errno in REFUSALS, name
        assert {name: os.pread(fd, 8192, 0) for name, fd in fds.items()} == before
        hp.busy.set(layout.BusyPage, "state", layout.BusyState.BUSY)
        state = os.pread(be.neighbours[hp.key], 4, 64)
        assert int.from_bytes(state, "little") == layout.BusyState.BUSY


def test_a_client_that_adds_its_own_seals_is_removed(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("hp-0")).join(ready=False) as client:
        fcntl.fcntl(client.busy.fd, ADD_SEALS, SEAL_SEAL)
        client.ready()
        assert client.sock.recv(1) == b""


def test_a_lease_on_a_page_delays_no_other_process(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("hp-0")).join(ready=False) as client:
        for page in (client.busy, client.record):
            with contextlib.suppress(OSError):
                fcntl.fcntl(page.fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        began = time.monotonic()
        client.ready()
        with ProtocolClient(agent.slot("be-0")).join() as be:
            be.receive_until({client.key})
        assert time.monotonic() - began < 5.0


def test_a_returning_client_must_send_its_own_pages(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join() as honest, ProtocolClient(agent.slot("be-0")).join() as client:
        honest.receive_message()
        client.receive_message()
        own = client.busy.fd
        unsealed = os.memfd_create("forged", os.MFD_ALLOW_SEALING)
        os.ftruncate(unsealed, 4096)
        reading, writing = os.pipe()
        for forged in (unsealed, reading, honest.busy.fd, client.record.fd):
            client.busy.fd = forged
            with pytest.raises((Refused, EOFError)) as refusal:
                client.return_to_agent()
            assert not isinstance(refusal.value, Refused) or refusal.value.code is join.Refusal.PAGES
        client.busy.fd = own
        for fd in (unsealed, reading, writing):
            os.close(fd)
