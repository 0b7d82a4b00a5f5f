"""The hook's C functions for threads, as `hook/include/orion/inprocess.h` declares them, through ctypes.

This module looks the functions up among the symbols of the process. It does not load the hook, because the hook must be
loaded before CUDA.
"""

import ctypes
import functools

from orion.errors import Conflict
from orion.hook.policy_table import TABLE

HP = 1
BE = 2
POLICIES = {policy.name: policy.number for policy in TABLE.policies}
"""The policies by name, as in enum orion_policy_kind."""


class SchedulerError(Conflict):
    """The scheduler cannot do what the caller asked for."""


class FiguresOfClient(ctypes.Structure):
    """struct orion_client_figures; times in nanoseconds."""

    _fields_ = (
        ("role", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("launches", ctypes.c_uint64),
        ("gated_launches", ctypes.c_uint64),
        ("gated_ns", ctypes.c_uint64),
        ("window_waits", ctypes.c_uint64),
        ("window_wait_ns", ctypes.c_uint64),
        ("overlapped_launches", ctypes.c_uint64),
        ("overlapped_ns", ctypes.c_uint64),
        ("busy_ns", ctypes.c_uint64),
        ("busy_periods", ctypes.c_uint64),
        ("gpu_ns", ctypes.c_uint64),
        ("in_flight_ns", ctypes.c_uint64),
    )


@functools.cache
def _process() -> ctypes.CDLL:
    """Return the functions with their types.

    Raises:
        SchedulerError: the hook is not preloaded.
    """
    symbols = ctypes.CDLL(None)
    if not hasattr(symbols, "orion_start_scheduler"):
        raise SchedulerError(
            "the hook is not loaded in this process, and it must be loaded before CUDA: start the program with "
            'LD_PRELOAD="$(python -c "import orion.hook; print(orion.hook.library())")", or use `orion launch`'
        )
    symbols.orion_set_policy.argtypes = (ctypes.c_int, ctypes.c_uint32)
    symbols.orion_client_stream.restype = ctypes.c_void_p
    symbols.orion_client_figures.argtypes = (ctypes.c_int, ctypes.POINTER(FiguresOfClient), ctypes.c_size_t)
    symbols.orion_scheduler_error.restype = ctypes.c_char_p
    return symbols


def _error() -> SchedulerError:
    """Return the error for the calling thread's last call, with the hook's reason."""
    return SchedulerError((_process().orion_scheduler_error() or b"").decode(errors="replace"))


def _checked(result: int) -> None:
    if result != 0:
        raise _error()


def start(clients: int) -> None:
    """Start the scheduler. Each function below raises SchedulerError if the hook reports an error."""
    _checked(_process().orion_start_scheduler(clients))


def stop() -> None:
    """Wait for all clients' work and unbind their threads."""
    _checked(_process().orion_stop_scheduler())


def set_role(client: int, role: int) -> None:
    """Give a client the role HP or BE. Call this before the client's first work."""
    _checked(_process().orion_set_client_role(client, role))


def set_policy(policy: int, max_slowdown_milli: int) -> None:
    """Set the policy (a value of POLICIES) and its overlap budget, in thousandths."""
    _checked(_process().orion_set_policy(policy, max_slowdown_milli))


def bind(client: int) -> None:
    """Bind the calling thread to a client; -1: unbind the thread."""
    _checked(_process().orion_set_client_idx(client))


def stream(client: int) -> int:
    """Return the CUstream of a client in the current context."""
    handle: int | None = _process().orion_client_stream(client)
    if handle is None:
        raise _error()
    return handle


def figures(client: int) -> FiguresOfClient:
    """Return the counts and times of a client since the scheduler started."""
    answer = FiguresOfClient()
    _checked(_process().orion_client_figures(client, ctypes.byref(answer), ctypes.sizeof(answer)))
    return answer
