"""Attacks by a hostile root besides messages and pages: on the agent's process, its limits, and the modes of its files.

The process must have the capabilities that containers have by default, and no more. Each function returns the attacks
that succeeded. hostile_client.py has the attacks that need only a user's rights.
"""

import array
import contextlib
import ctypes
import mmap
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

from orion.hook import join, layout
from tests.node_agent.protocol_client import ProtocolClient, Refused, connect, hello, receive, send_with_fds

DEFAULT_CAPABILITIES = (
    *("chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap", "net_bind_service"),
    *("net_raw", "sys_chroot", "mknod", "audit_write", "setfcap"),
)
""" The default capabilities of a container in containerd and Docker. """

SO_PEERPIDFD = 77
_PIDFD_GETFD = 438
_DESCRIPTORS_TRIED = 256
_NOBODY = 12345
_PER_MESSAGE = 253
_FOREIGN_PAGE = b"\xff" * 64

libc = ctypes.CDLL(None, use_errno=True)


def reach_into_agent(directory: Path) -> list[str]:
    """Take the agent's descriptors through its socket, which identifies the process at the other end (Linux 6.5)."""
    found = []
    with contextlib.suppress(OSError), connect(directory) as sock:
        pidfd = sock.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
        for number in range(_DESCRIPTORS_TRIED):
            taken = libc.syscall(_PIDFD_GETFD, pidfd, number, 0)
            if taken >= 0:
                found.append("a descriptor of the agent")
                os.close(taken)
                break
        os.close(pidfd)
    return found


def write_past_protection(directory: Path) -> list[str]:
    """Write to pages that are mapped read-only: by changing the mapping, and as debuggers do."""
    found = []
    with contextlib.suppress(OSError, EOFError, Refused), ProtocolClient(directory).join() as client:
        client.receive_message()
        for name, fd in _foreign(client):
            before = os.pread(fd, layout.PAGE_SIZE, 0)
            with mmap.mmap(fd, layout.PAGE_SIZE, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
                address = _address(mapped)
                if libc.mprotect(ctypes.c_void_p(address), layout.PAGE_SIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0:
                    found.append(f"mprotect of {name}")
                if _written_by_memory_file(address):
                    found.append(f"/proc/self/mem of {name}")
                if _written_as_by_a_debugger(address):
                    found.append(f"process_vm_writev of {name}")
            now = os.pread(fd, layout.PAGE_SIZE, 0)
            if _FOREIGN_PAGE in now and _FOREIGN_PAGE not in before:
                found.append(f"content of {name}")
    return found


def spoil_modes(directory: Path) -> None:
    """Remove all rights to open the pages again. Root may do this, because root owns them."""
    with contextlib.suppress(OSError, EOFError, Refused), ProtocolClient(directory).join() as client:
        client.receive_message()
        for _, fd in _foreign(client):
            with contextlib.suppress(OSError):
                os.fchmod(fd, 0)
                os.fchown(fd, _NOBODY, _NOBODY)


def pose_as_neighbour(directory: Path) -> list[str]:
    """Pose as an hp client that rejoins a restarted agent, with the client's own page and with forged pages."""
    found = []
    with contextlib.suppress(OSError, EOFError, Refused), ProtocolClient(directory).join() as client:
        client.receive_message()
        for neighbour, page in client.neighbours.items():
            forged = os.memfd_create("forged", os.MFD_ALLOW_SEALING)
            os.ftruncate(forged, layout.PAGE_SIZE)
            for fds in ([page, page], [page, client.record.fd], [client.busy.fd, client.record.fd], [forged, forged]):
                with connect(directory) as sock:
                    send_with_fds(sock, hello(join.HELLO_RETURNS, *neighbour), fds)
                    if not isinstance(receive(sock)[0], join.Refused):
                        found.append("the client index of an hp client")
            os.close(forged)
    return found


@contextlib.contextmanager
def descriptors_in_flight() -> Iterator[int]:
    """Keep as many descriptors in flight as Linux allows one user; roots of all containers are the same user.

    Yields their number.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    wanted, sent = limit + _PER_MESSAGE + 1, 0
    with contextlib.ExitStack() as stack, open(os.devnull) as something:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [something.fileno()] * _PER_MESSAGE))]
        with contextlib.suppress(OSError):
            while sent < wanted:
                ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
                for end in ends:
                    stack.enter_context(end)
                ends[0].setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while sent < wanted:
                        ends[0].sendmsg([b"x"], rights)
                        sent += _PER_MESSAGE
        yield sent


def _foreign(client: ProtocolClient) -> list[tuple[str, int]]:
    pages = [("policy", client.policy.fd), ("grant", client.grant.fd)]
    return pages + [("an hp client's busy page", fd) for fd in client.neighbours.values()]


def _address(mapped: mmap.mmap) -> int:
    """Return the address of a read-only mapping; ctypes accepts writable mappings only."""
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(mapped), ctypes.byref(buffer), 0)
    address = int(buffer.address)
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return address


class _Buffer(ctypes.Structure):
    """The interpreter's Py_buffer. Only the address is used."""

    _fields_ = (("address", ctypes.c_void_p), ("rest", ctypes.c_byte * 256))


def _written_by_memory_file(address: int) -> bool:
    with contextlib.suppress(OSError), open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(address + 64)
        return memory.write(_FOREIGN_PAGE) == len(_FOREIGN_PAGE)
    return False


class _Range(ctypes.Structure):
    """The kernel's struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _written_as_by_a_debugger(address: int) -> bool:
    source = ctypes.create_string_buffer(_FOREIGN_PAGE, len(_FOREIGN_PAGE))
    local = _Range(ctypes.addressof(source), len(_FOREIGN_PAGE))
    remote = _Range(address + 64, len(_FOREIGN_PAGE))
    return bool(
        libc.process_vm_writev(os.getpid(), ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) == len(_FOREIGN_PAGE)
    )
