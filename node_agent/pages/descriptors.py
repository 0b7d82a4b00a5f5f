"""Sealed memory behind descriptors: how a page comes to have one writer for ever.

A page is a memfd. Before anybody else sees it, it can neither shrink nor grow, so no reader can be faulted by its
writer. Once its writer has mapped it, it is sealed against every further writer, root included; the one writable
mapping goes on working. A file on tmpfs was refused: its writer can truncate it, and its readers die of SIGBUS.

The read-only descriptor is opened at once, before the writable one is sent: a tenant could otherwise take a lease
on the page, and opening it later would wait until the lease is broken.
"""

import contextlib
import fcntl
import os
import resource
import threading
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
        name: shown in /proc/PID/maps of those who map it.

    Returns:
        A writable and a read-only descriptor; the caller owns both.

    Raises:
        OSError: no descriptors or no memory are left.
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
    """Return a descriptor of a file in memory that nobody can change any more; the caller owns it.

    Raises:
        OSError: no descriptors or no memory are left.
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
    """Open the file behind ``descriptor`` again, read-only; never waits for a lease on it."""
    return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def seal_against_writers(writable: int) -> None:
    """Let nobody write the page any more but through mappings that exist.

    Raises:
        OSError: its holder has sealed it in another way.
    """
    fcntl.fcntl(writable, _ADD_SEALS, SEALS_OF_WRITING)


def seals(descriptor: int) -> int | None:
    """Return the seals of a file in memory, or None if it is no such file.

    Asked before anything else of a descriptor that a tenant sent: for files of other kinds the kernel answers by
    itself, while even ``fstat`` would ask, and wait for, a file system that the tenant may serve.
    """
    try:
        return fcntl.fcntl(descriptor, _GET_SEALS)
    except OSError:
        return None


def identity(descriptor: int) -> tuple[int, int]:
    """Return device and inode, which name a page for as long as anybody holds it."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def map_to_read(readable: int) -> memoryview:
    """Map a page read-only; the memory goes when the view goes."""
    return memoryview(mmap(readable, layout.PAGE_SIZE, MAP_SHARED, PROT_READ))


def map_to_write(writable: int) -> memoryview:
    """Map a page for its one writer."""
    return memoryview(mmap(writable, layout.PAGE_SIZE, MAP_SHARED, PROT_READ | PROT_WRITE))


def close(descriptors: Iterable[int]) -> None:
    """Close descriptors of our own."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def close_foreign(descriptors: Iterable[int]) -> None:
    """Close descriptors that a tenant sent, without waiting.

    Closing flushes, and a flush asks the file system; one that the tenant serves may never answer. So what is not a
    file in memory is closed by a thread of its own.
    """
    slow = []
    for descriptor in descriptors:
        if seals(descriptor) is None:
            slow.append(descriptor)
        else:
            close([descriptor])
    if slow:
        threading.Thread(target=close, args=(slow,), daemon=True, name="close").start()


def raise_limit() -> int:
    """Allow this process as many descriptors as it may have; return how many that is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20
