"""Calls of the CUDA driver through ctypes, for the simulated and the spinning workloads.

NVIDIA's `cuda-bindings` were rejected: they would add 30 MB to the plain install, where only the demo would use
twenty of their functions. The hook sees the same calls with ctypes as with `cuda-bindings`. Functions have the names
that the library exports, including the version suffix.
"""

import ctypes
import functools

from orion.errors import Unavailable


@functools.cache
def library() -> ctypes.CDLL:
    """Return libcuda."""
    return ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: object) -> None:
    """Call a function. Pass pointers and handles as ctypes objects: ctypes passes a plain int as a C int.

    Raises:
        Unavailable: The call failed.
    """
    if status := getattr(library(), name)(*arguments):
        raise Unavailable(f"{name} answered {status}")


def made(name: str, *arguments: object) -> ctypes.c_void_p:
    """Call a function that writes a handle to the address in its first argument; return the handle."""
    handle = ctypes.c_void_p()
    call(name, ctypes.byref(handle), *arguments)
    return handle
