"""The CUDA driver by ctypes, as far as the simulated and the spinning workloads call it.

NVIDIA's `cuda-bindings` were refused: 30 MB for twenty functions, in an installation whose demo needs them alone. The
hook sees the same program either way. Functions are named as the library exports them, version and all.
"""

import ctypes
import functools


class DriverError(RuntimeError):
    """A driver call failed; the text holds its name and number."""


@functools.cache
def library() -> ctypes.CDLL:
    """Return libcuda."""
    return ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: object) -> None:
    """Call a function. Pointers and handles are ctypes objects: a plain int is passed as an int.

    Raises:
        DriverError: It failed.
    """
    if status := getattr(library(), name)(*arguments):
        raise DriverError(f"{name} answered {status}")


def made(name: str, *arguments: object) -> ctypes.c_void_p:
    """Call a function that writes a handle to where its first argument points, and return the handle."""
    handle = ctypes.c_void_p()
    call(name, ctypes.byref(handle), *arguments)
    return handle
