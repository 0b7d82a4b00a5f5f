"""Wakes the processes that wait for a word of a shared page (futex(2)). Python has no function for this."""

import ctypes
import platform

_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), -1)
_WAKE, _ALL = 1, 2**31 - 1
_libc = ctypes.CDLL(None, use_errno=True)


def wake_all(memory: memoryview, offset: int) -> None:
    """Wake all that wait for the 32-bit word at ``offset`` of a writable page. On unknown machines nothing happens."""
    word = ctypes.c_uint32.from_buffer(memory, offset)
    _libc.syscall(_SYS_FUTEX, ctypes.byref(word), _WAKE, _ALL, None, None, 0)
