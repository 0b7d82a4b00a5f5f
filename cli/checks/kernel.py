"""Tries each Linux feature that the hook and the agent need.

Rejected: comparing the kernel's version. Distributions add features to older versions, and sandboxes forbid calls.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import platform
from collections.abc import Iterator

from orion.cli.checks import Check, fail, note, ok

F_SEAL_FUTURE_WRITE = 0x10  # not in Python's fcntl
MADV_WIPEONFORK = 18
CLOSE_RANGE_UNSHARE = 2
# close_range has the same number on x86-64 and arm64; get_robust_list has a different number on each.
SYS_CLOSE_RANGE = 436
SYS_GET_ROBUST_LIST = {"x86_64": 274, "aarch64": 100}
NEWER = "run Linux 5.9 or later, in a sandbox that allows the call (seccomp profile)"

_libc = ctypes.CDLL(None, use_errno=True)


def examine() -> Iterator[Check]:
    """Try each feature in this process."""
    yield _seals()
    yield _robust_futex()
    yield _close_range()
    yield _wipe_on_fork()


def _seals() -> Check:
    name = "sealed pages"
    try:
        descriptor = os.memfd_create("orion-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        return fail(name, f"memfd_create: {error.strerror}", NEWER)
    try:
        os.ftruncate(descriptor, mmap.PAGESIZE)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | F_SEAL_FUTURE_WRITE)
    except OSError as error:
        return fail(name, f"F_SEAL_FUTURE_WRITE: {error.strerror}", NEWER)
    finally:
        os.close(descriptor)
    return ok(name, "memfd with F_SEAL_FUTURE_WRITE")


def _robust_futex() -> Check:
    name, number = "robust futexes", SYS_GET_ROBUST_LIST.get(platform.machine())
    if number is None:
        return note(name, f"not checked on {platform.machine()}")
    head, length = ctypes.c_void_p(), ctypes.c_size_t()
    if _libc.syscall(number, 0, ctypes.byref(head), ctypes.byref(length)) != 0:
        return fail(
            name, f"get_robust_list: {os.strerror(ctypes.get_errno())}; the agent would not notice a dead client", NEWER
        )
    return ok(name, "the kernel marks a client's death")


def _close_range() -> Check:
    name, none = "descriptor tables", ctypes.c_uint(0xFFFFFFFF)
    # The range is empty, so the call closes nothing. The hook's thread needs this call so that it does not share the
    # program's file descriptors.
    if _libc.syscall(SYS_CLOSE_RANGE, none, none, CLOSE_RANGE_UNSHARE) == 0:
        return ok(name, "close_range can unshare")
    reason = "not in this kernel" if ctypes.get_errno() == errno.ENOSYS else os.strerror(ctypes.get_errno())
    return note(name, f"close_range: {reason}; a program that closes all descriptors disconnects its hook", NEWER)


def _wipe_on_fork() -> Check:
    name = "memory wiped on fork"
    with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as page:
        try:
            page.madvise(MADV_WIPEONFORK)
        except OSError as error:
            return fail(name, f"MADV_WIPEONFORK: {error.strerror}", NEWER)
    return ok(name, "MADV_WIPEONFORK")
