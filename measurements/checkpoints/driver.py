"""The CUDA driver by ctypes, as a program without any library uses it, and a change: out of the GPU and back."""

import ctypes
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orion.errors import Unavailable

CHUNK = 64 << 20
""" Bytes that one copy of a check moves. """
CHUNK_STEP = 4096
""" Chunks of a pattern begin so many bytes apart in the host's random bytes, so no two chunks are alike. """
RELAXED, NON_BLOCKING, PORTABLE = 2, 1, 1
LOCK_MS = 5000

U64 = ctypes.c_uint64
P = ctypes.c_void_p


def say(**fields: Any) -> None:
    """Print one line of the report, with the time of CLOCK_MONOTONIC."""
    print(json.dumps({**fields, "at_ns": time.monotonic_ns()}), flush=True)


class DriverError(Unavailable):
    """A call of the driver failed."""


class Gpu:
    """The first GPU with its primary context current to this thread, and calls by their names in cuda.h."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.ok("cuInit", 0)
        self.context = self.new("cuDevicePrimaryCtxRetain", 0)
        self.enter()

    def enter(self) -> None:
        """Make the context current to the calling thread."""
        self.ok("cuCtxSetCurrent", self.context)

    def code(self, name: str, *arguments: Any) -> int:
        """Call a function; return its CUresult."""
        return int(getattr(self.library, name)(*arguments))

    def ok(self, name: str, *arguments: Any) -> None:
        """Call a function that must succeed.

        Raises:
            DriverError: it did not.
        """
        if result := self.code(name, *arguments):
            raise DriverError(f"{name} returned {result}")

    def new(self, name: str, *arguments: Any) -> Any:
        """Call a function whose first argument is where it puts a handle or an address; return that."""
        made = U64()
        self.ok(name, ctypes.byref(made), *arguments)
        return U64(made.value)

    def new_last(self, name: str, *arguments: Any) -> Any:
        """Do the same with a function whose last argument says where."""
        made = U64()
        self.ok(name, *arguments, ctypes.byref(made))
        return U64(made.value)

    def free_bytes(self) -> int:
        """Return the device memory that is free."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.ok("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def read(self, address: int, size: int) -> bytes:
        """Return bytes of device memory."""
        back = ctypes.create_string_buffer(size)
        self.ok("cuMemcpyDtoH_v2", back, U64(address), ctypes.c_size_t(size))
        return back.raw


class Pattern:
    """Device memory with known contents: chunks of random bytes, no two alike."""

    def __init__(self, gpu: Gpu, address: int, size: int) -> None:
        self.gpu, self.address, self.size = gpu, address, size
        count = -(-size // CHUNK)
        self._bytes = ctypes.create_string_buffer(os.urandom(min(size, CHUNK) + count * CHUNK_STEP))
        for at, source in self._chunks():
            gpu.ok("cuMemcpyHtoD_v2", U64(address + at), P(source), ctypes.c_size_t(min(CHUNK, size - at)))

    def is_whole(self) -> bool:
        """Read everything back; return whether it is unchanged."""
        back, same = ctypes.create_string_buffer(CHUNK), ctypes.CDLL(None).memcmp
        for at, source in self._chunks():
            length = ctypes.c_size_t(min(CHUNK, self.size - at))
            self.gpu.ok("cuMemcpyDtoH_v2", back, U64(self.address + at), length)
            if same(back, P(source), length):
                return False
        return True

    def _chunks(self) -> list[tuple[int, int]]:
        start = ctypes.addressof(self._bytes)
        return [(at, start + at // CHUNK * CHUNK_STEP) for at in range(0, self.size, CHUNK)]


def host_memory() -> dict[str, int]:
    """Return this process's host memory and its cgroup's, in KiB."""
    wanted = ("VmRSS", "RssAnon", "RssFile", "RssShmem", "VmPin", "VmLck")
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    seen = {words[0][:-1]: int(words[1]) for words in lines if words and words[0][:-1] in wanted}
    own = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip()
    for folder in (f"/sys/fs/cgroup{own}", "/sys/fs/cgroup", "/sys/fs/cgroup/memory"):
        for name in ("memory.current", "memory.usage_in_bytes"):
            if (path := Path(folder) / name).exists():
                return {**seen, "cgroup": int(path.read_text()) >> 10}
    return seen


class Change:
    """The four calls, by this process for itself, from whichever thread uses this; each reports code and time."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.process = gpu, os.getpid()
        self.codes: list[int] = []

    def step(self, name: str, argument: Any = None) -> int:
        """Make one call; report it, and return its CUresult."""
        begun = time.monotonic_ns()
        code = self.gpu.code(f"cuCheckpointProcess{name}", self.process, argument)
        took = (time.monotonic_ns() - begun) / 1e9
        say(stage=name, code=code, seconds=round(took, 6), state=self.state(), **host_memory())
        self.codes.append(code)
        return code

    def lock(self, milliseconds: int = LOCK_MS) -> int:
        """Lock; milliseconds: how long it may wait, 0 for ever."""
        return self.step("Lock", (ctypes.c_uint32 * 16)(milliseconds))

    def state(self) -> int:
        """Return the process's state, a CUprocessState; -1: the driver does not say."""
        state = ctypes.c_int()
        failed = self.gpu.code("cuCheckpointProcessGetState", self.process, ctypes.byref(state))
        return -1 if failed else state.value

    def leave(self) -> bool:
        """Lock and leave the GPU; undo the lock if that is refused."""
        if self.lock():
            return False
        if self.step("Checkpoint"):
            self.step("Unlock")
            return False
        return True

    def come_back(self) -> bool:
        """Return to the GPU and go on. False: this process is lost."""
        return self.step("Restore") == 0 and self.step("Unlock") == 0


def in_thread(work: Callable[[], bool]) -> bool:
    """Run `work` in a thread of its own, which has no context, and wait for it."""
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    thread.join()
    return bool(answers and answers[0])


def there_and_back(gpu: Gpu, stay_s: float) -> bool:
    """Leave the GPU, stay away for so long, and return, in a thread of its own.

    Returns:
        Whether the process left and is back. Where it is lost, this process ends, as its calls would wait for ever.
    """
    change = Change(gpu)

    def work() -> bool:
        if not change.leave():
            return False
        time.sleep(stay_s)
        say(stage="stayed", **host_memory())
        if not change.come_back():
            change.step("Restore")
            change.step("Unlock")
            say(end="lost")
            os._exit(0)
        return True

    return in_thread(work)
