"""Wakes the processes that wait for a word of a shared page (futex(2)). Python has no function for this."""

import ctypes
import platform

_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), -1)
_WAKE, _ALL = 1, 2**31 - 1
_libc = ctypes.PyDLL(None)
""" Keeps the interpreter's lock: waking others takes no longer than giving the lock up and taking it again. """


class Futex:
    """A 32-bit word of a writable page, at ``offset``."""

    def __init__(self, memory: memoryview, offset: int) -> None:
        self._word = ctypes.byref(ctypes.c_uint32.from_buffer(memory, offset))

    def wake_all(self) -> None:
        """Wake all that wait for the word. On unknown machines nothing happens."""
        _libc.syscall(_SYS_FUTEX, self._word, _WAKE, _ALL)
