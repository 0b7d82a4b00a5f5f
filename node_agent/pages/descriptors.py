"""Sealed memory behind descriptors: gives each page exactly one writer.

A page is a memfd. Its size is sealed before any other process sees it, so a writer cannot truncate it and fault its
readers. When its writer has mapped the page, the agent seals it against all further writers, root included. The
existing writable mapping continues to work. A file on tmpfs would not do: its writer can truncate it, and its readers
then die of SIGBUS.

The agent opens the read-only descriptor before it sends the writable one. A tenant with the writable descriptor could
take a lease on the page, and a later open would wait until the kernel breaks the lease.
"""

import contextlib
import fcntl
import os
import resource
from collections.abc import Iterable
from mmap import MAP_SHARED, PROT_READ, PROT_WRITE, mmap

from orion.hook import layout

SEAL_SEAL = 0x01
SEAL_SHRINK = 0x02
SEAL_GROW = 0x04
SEAL_WRITE = 0x08
SEAL_FUTURE_WRITE = 0x10
SEALS_OF_SIZE = SEAL_SHRINK | SEAL_GROW
SEALS_OF_WRITING = SEAL_FUTURE_WRITE | SEAL_SEAL

_ADD_SEALS = 1033
_GET_SEALS = 1034


def new_page(name: str) -> tuple[int, int]:
    """Make an empty page whose size is sealed.

    Args:
        name: shown in /proc/PID/maps of processes that map the page.

    Returns:
        A writable and a read-only descriptor; the caller owns both.

    Raises:
        OSError: no descriptor or no memory is left.
    """
    writable = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(writable, layout.PAGE_SIZE)
        fcntl.fcntl(writable, _ADD_SEALS, SEALS_OF_SIZE)
        return writable, reopen_to_read(writable)
    except BaseException:
        os.close(writable)
        raise


def sealed_file(name: str, content: bytes) -> int:
    """Return a descriptor of a file in memory that no process can change any more; the caller owns it.

    Raises:
        OSError: no descriptor or no memory is left.
    """
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        fcntl.fcntl(descriptor, _ADD_SEALS, SEALS_OF_SIZE | SEAL_WRITE | SEAL_SEAL)
        return descriptor
    except BaseException:
        os.close(descriptor)
        raise


def reopen_to_read(descriptor: int) -> int:
    """Open the file behind ``descriptor`` again, read-only; never waits for a lease."""
    return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def seal_against_writers(writable: int) -> None:
    """Seal the page: from now on only existing mappings can write it.

    Raises:
        OSError: a process that has the page has sealed it in another way.
    """
    fcntl.fcntl(writable, _ADD_SEALS, SEALS_OF_WRITING)


def seal_against_seals(writable: int) -> None:
    """Seal a page that several processes write: none of them can prevent that the others write it."""
    fcntl.fcntl(writable, _ADD_SEALS, SEAL_SEAL)


def seals(descriptor: int) -> int | None:
    """Return the seals of a file in memory; None: it is another kind of file.

    Call this before anything else on a descriptor that a tenant sent. For other kinds of files the kernel answers
    without the file system. Even ``fstat`` would wait for the file system, which may be the tenant's own.
    """
    try:
        return fcntl.fcntl(descriptor, _GET_SEALS)
    except OSError:
        return None


def identity(descriptor: int) -> tuple[int, int]:
    """Return device and inode, which identify a page as long as it exists."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def map_to_read(readable: int) -> memoryview:
    """Map a page read-only; it is unmapped when the view is deleted."""
    return memoryview(mmap(readable, layout.PAGE_SIZE, MAP_SHARED, PROT_READ))


def map_to_write(writable: int) -> memoryview:
    """Map a page for its one writer."""
    return memoryview(mmap(writable, layout.PAGE_SIZE, MAP_SHARED, PROT_READ | PROT_WRITE))


def close(descriptors: Iterable[int]) -> None:
    """Close descriptors. What a tenant sent goes through clients/rights.py, because its close may wait."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def raise_limit() -> int:
    """Raise the limit of open descriptors to the maximum for this process; return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20
