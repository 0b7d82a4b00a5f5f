"""A client for tests of checkpoints beside other processes: it answers each line, a command, with one line."""

import ctypes
import os
import sys
from collections.abc import Callable

from cuda.bindings import driver as cuda

from tests.sim.checkpoint_client import checkpoint, contents, lock, restore, state, unlock
from tests.sim.cuda_client import Device, ok


def result(call: Callable[[], tuple[object, ...]]) -> Callable[[], int]:
    return lambda: int(call()[0])  # type: ignore[call-overload]


def allocate(size: str) -> int:
    return int(cuda.cuMemAlloc(int(size))[0])


def legacy_handle() -> str:
    """A handle of new memory that contains a word."""
    memory = ok(cuda.cuMemAlloc(4096))
    ok(cuda.cuMemcpyHtoD(memory, b"word", 4))
    return ctypes.string_at(ok(cuda.cuIpcGetMemHandle(memory)).getPtr(), 64).hex()


def open_handle(text: str) -> str:
    """The first word of another process's memory."""
    handle = cuda.CUipcMemHandle()
    ctypes.memmove(handle.getPtr(), bytes.fromhex(text), 64)
    memory = ok(cuda.cuIpcOpenMemHandle(handle, 1))
    word = contents(memory, 4).decode()
    ok(cuda.cuIpcCloseMemHandle(memory))
    return word


COMMANDS: dict[str, Callable[..., object]] = {
    "lock": result(lock),
    "checkpoint": result(checkpoint),
    "restore": result(restore),
    "unlock": result(unlock),
    "state": lambda: int(state()),
    "alloc": allocate,
    "free": lambda: int(ok(cuda.cuMemGetInfo())[0]),
    "share": legacy_handle,
    "open": open_handle,
}


def main() -> None:
    gpu = Device()  # keeps its context
    print(os.getpid(), flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        print(COMMANDS[command](*arguments), flush=True)
    del gpu


if __name__ == "__main__":
    main()
