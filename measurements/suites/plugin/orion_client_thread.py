"""A pytest plugin that runs the tests in a client's thread, beside a client of the other role in the same process.

ORION_SUITE_ROLE is the role of the tests. The client beside copies memory on the GPU 20 times, waits, and pauses for
10 ms; it begins when the process has a context. The hook must be preloaded.
"""

import ctypes
import os
import sys
import threading

import pytest
from _pytest.main import pytest_runtestloop as run_tests

from orion.inprocess import Scheduler

ROLE = os.environ["ORION_SUITE_ROLE"]
OTHER = "be" if ROLE == "hp" else "hp"
LOOK_SECONDS = 0.05
PAUSE_SECONDS = 0.01
COPIES = 20
BYTES = 64 << 20
SWITCH_SECONDS = 5e-4  # so that the other thread gets the interpreter soon

cuda = ctypes.CDLL("libcuda.so.1")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> object:
    """Run pytest's own loop in the client's thread."""
    ended: list[object] = []
    over = threading.Event()
    sys.setswitchinterval(SWITCH_SECONDS)

    def tests() -> None:
        try:
            with scheduler.client(0):
                ended.append(run_tests(session))
        except BaseException as error:  # pytest raises what ends its session
            ended.append(error)

    with Scheduler(clients=[ROLE, OTHER], policy="gate") as scheduler:
        client, beside = threading.Thread(target=tests), threading.Thread(target=_work, args=(scheduler, over))
        client.start()
        beside.start()
        client.join()
        over.set()
        beside.join()
    if isinstance(ended[0], BaseException):
        raise ended[0]
    return ended[0]


def _work(scheduler: Scheduler, over: threading.Event) -> None:
    context, first, second = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
    while not _has_context():
        if over.wait(LOOK_SECONDS):
            return
    if cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or cuda.cuCtxSetCurrent(context):
        return
    with scheduler.client(1):
        room = [cuda.cuMemAlloc_v2(ctypes.byref(each), ctypes.c_size_t(BYTES)) for each in (first, second)]
        while not any(room) and not over.wait(PAUSE_SECONDS):
            for _ in range(COPIES):
                cuda.cuMemcpyDtoDAsync_v2(second, first, ctypes.c_size_t(BYTES), None)
            cuda.cuStreamSynchronize(None)


def _has_context() -> bool:
    flags, active = ctypes.c_uint(), ctypes.c_int()
    return cuda.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active)) == 0 and bool(active.value)
