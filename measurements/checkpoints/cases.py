"""What the probe tries without PyTorch: one function for each thing that a process may have, or do, at a change."""

import ctypes
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from measurements.checkpoints.driver import (
    NON_BLOCKING,
    PORTABLE,
    RELAXED,
    U64,
    Change,
    Gpu,
    P,
    Pattern,
    in_thread,
    say,
    there_and_back,
)

MIB = 1 << 20
PINNED, DEVICE, READ_WRITE, DESCRIPTOR = 1, 1, 3, 1
SOME = 16 * MIB
""" Bytes of the memory whose kind a case is about. """
CALL_S = 5.0
""" Seconds after which a call counts as one that does not return. """


def size_t(value: int) -> ctypes.c_size_t:
    """Return a size as the driver takes it."""
    return ctypes.c_size_t(value)


def plain(gpu: Gpu, stay_s: float, mebibytes: int = 64) -> None:
    """Memory of cuMemAlloc, of a size: two changes."""
    pattern = Pattern(gpu, gpu.new("cuMemAlloc_v2", size_t(mebibytes * MIB)).value, mebibytes * MIB)
    for _ in range(2):
        say(back=there_and_back(gpu, stay_s), whole=pattern.is_whole())


def objects(gpu: Gpu, stay_s: float) -> None:
    """A stream, timed events, a graph, pinned and registered memory, and memory of a pool: three changes."""
    stream, first, last = gpu.new("cuStreamCreate", NON_BLOCKING), *(gpu.new("cuEventCreate", 0) for _ in range(2))
    source, target = (gpu.new("cuMemAlloc_v2", size_t(SOME)).value for _ in range(2))
    pooled = gpu.new("cuMemAllocAsync", size_t(SOME), stream).value
    gpu.ok("cuStreamSynchronize", stream)
    patterns = [Pattern(gpu, address, SOME) for address in (source, pooled)]
    pinned = gpu.new("cuMemHostAlloc", size_t(SOME), PORTABLE)
    ours = ctypes.create_string_buffer(2 * MIB)
    gpu.ok("cuMemHostRegister_v2", ours, size_t(len(ours)), PORTABLE)
    gpu.ok("cuStreamBeginCapture_v2", stream, RELAXED)
    gpu.ok("cuMemsetD8Async", U64(target), ctypes.c_ubyte(1), size_t(SOME), stream)
    gpu.ok("cuMemcpyDtoDAsync_v2", U64(target), U64(pooled), size_t(SOME // 2), stream)
    graph = gpu.new("cuGraphInstantiateWithFlags", gpu.new_last("cuStreamEndCapture", stream), U64(0))
    gpu.ok("cuEventRecord", first, stream)
    expected = gpu.read(pooled, SOME // 2) + b"\x01" * (SOME // 2)
    for number in range(1, 4):
        back = there_and_back(gpu, stay_s)
        ctypes.memset(pinned.value, number, SOME)
        gpu.ok("cuGraphLaunch", graph, stream)
        gpu.ok("cuEventRecord", last, stream)
        gpu.ok("cuEventSynchronize", last)
        replayed, took = gpu.read(target, SOME) == expected, ctypes.c_float()
        timed = gpu.code("cuEventElapsedTime", ctypes.byref(took), first, last)
        gpu.ok("cuMemcpyHtoD_v2", U64(target), P(pinned.value), size_t(SOME))
        copied = gpu.read(target, SOME) == bytes([number]) * SOME
        whole = all(pattern.is_whole() for pattern in patterns)
        say(back=back, whole=whole, replayed=replayed, copied=copied, timed=timed, event_ms=took.value)


def physical(gpu: Gpu) -> tuple[U64, int]:
    """Exportable memory of cuMemCreate, and the address where it is mapped."""
    kind = (ctypes.c_uint64 * 4)(PINNED | DESCRIPTOR << 32, DEVICE)
    handle = gpu.new("cuMemCreate", size_t(SOME), kind, U64(0))
    return handle, mapped(gpu, handle)


def mapped(gpu: Gpu, handle: U64) -> int:
    """Map memory of cuMemCreate; return the address."""
    address = gpu.new("cuMemAddressReserve", size_t(SOME), size_t(0), U64(0), U64(0))
    gpu.ok("cuMemMap", address, size_t(SOME), size_t(0), handle, U64(0))
    gpu.ok("cuMemSetAccess", address, size_t(SOME), (ctypes.c_int * 3)(DEVICE, 0, READ_WRITE), size_t(1))
    return int(address.value)


def exported_descriptor(gpu: Gpu, handle: U64) -> int:
    """Export memory of cuMemCreate; return the descriptor."""
    file = ctypes.c_int()
    gpu.ok("cuMemExportToShareableHandle", ctypes.byref(file), handle, DESCRIPTOR, U64(0))
    return file.value


def virtual(gpu: Gpu, stay_s: float) -> None:
    """Memory of cuMemCreate that is mapped, then also exported."""
    handle, address = physical(gpu)
    pattern = Pattern(gpu, address, SOME)
    say(exported=False, back=there_and_back(gpu, stay_s), whole=pattern.is_whole())
    exported_descriptor(gpu, handle)
    say(exported=True, back=there_and_back(gpu, stay_s), whole=pattern.is_whole())


def owner(gpu: Gpu) -> None:
    """Another process: gives away its memory by descriptor and by a legacy handle, and lives until its input ends."""
    handle, _ = physical(gpu)
    legacy = ctypes.create_string_buffer(64)
    gpu.ok("cuIpcGetMemHandle", legacy, gpu.new("cuMemAlloc_v2", size_t(SOME)))
    with socket.socket(fileno=0) as given:
        socket.send_fds(given, [legacy.raw], [exported_descriptor(gpu, handle)])
        given.recv(1)


class Owner:
    """The process of `owner`, and what it gave."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.given = ours
        command = [sys.executable, "-m", "measurements.checkpoints", "owner"]
        self.process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
        theirs.close()
        self.legacy, (self.file, *_), _, _ = socket.recv_fds(ours, 64, 1)

    def end(self) -> None:
        """Let the process end, and wait for it."""
        self.given.close()
        self.process.wait()


def imported(gpu: Gpu, stay_s: float, kept: bool = True) -> None:
    """Memory of another process by descriptor; `kept`: until after the change, else released before it."""
    other = Owner()
    handle = gpu.new("cuMemImportFromShareableHandle", P(other.file), DESCRIPTOR)
    if kept:
        mapped(gpu, handle)
    else:
        gpu.ok("cuMemRelease", handle)
        other.end()
    say(back=there_and_back(gpu, stay_s), kept=kept)


def released(gpu: Gpu, stay_s: float) -> None:
    """Memory of another process, released before the change."""
    imported(gpu, stay_s, kept=False)


class LegacyHandle(ctypes.Structure):
    """CUipcMemHandle, which is passed by value."""

    _fields_ = (("reserved", ctypes.c_char * 64),)


def legacy_opened(gpu: Gpu, stay_s: float) -> None:
    """Memory of another process by cuIpcOpenMemHandle."""
    other = Owner()
    gpu.new("cuIpcOpenMemHandle_v2", LegacyHandle.from_buffer_copy(other.legacy), 1)
    say(back=there_and_back(gpu, stay_s))
    other.end()


def legacy_given(gpu: Gpu, stay_s: float) -> None:
    """Own memory whose handle was asked for by cuIpcGetMemHandle; nobody opened it."""
    gpu.ok("cuIpcGetMemHandle", ctypes.create_string_buffer(64), gpu.new("cuMemAlloc_v2", size_t(SOME)))
    say(back=there_and_back(gpu, stay_s))


def managed(gpu: Gpu, stay_s: float) -> None:
    """Managed memory, then without it again."""
    memory = gpu.new("cuMemAllocManaged", size_t(SOME), 1)
    say(managed=True, back=there_and_back(gpu, stay_s))
    gpu.ok("cuMemFree_v2", memory)
    say(managed=False, back=there_and_back(gpu, stay_s))


def calls(gpu: Gpu, stay_s: float) -> None:
    """Calls of another thread while this process is locked: do they wait until the unlock?"""
    change, begins = Change(gpu), threading.Event()

    def call() -> None:
        gpu.enter()
        begins.wait()
        begun = time.monotonic()
        gpu.free_bytes()
        say(call_s=round(time.monotonic() - begun, 6))

    caller = threading.Thread(target=call)
    caller.start()
    change.lock()
    begins.set()
    time.sleep(stay_s)
    say(returned_while_locked=not caller.is_alive())
    change.step("Unlock")
    caller.join()


def waiting_stream(gpu: Gpu) -> tuple[U64, Callable[[], None]]:
    """A stream that waits for a word of host memory, and what writes it."""
    word, stream = gpu.new("cuMemHostAlloc", size_t(4096), PORTABLE), gpu.new("cuStreamCreate", NON_BLOCKING)
    ctypes.memset(word.value, 0, 4096)
    gpu.ok("cuStreamWaitValue32_v2", stream, word, ctypes.c_uint32(1), 0)

    def release() -> None:
        ctypes.memset(word.value, 1, 1)

    return stream, release


def blocked(gpu: Gpu, stay_s: float) -> None:
    """A thread that waits for work which does not end: the lock must time out, and later succeed."""
    stream, release = waiting_stream(gpu)
    change, waits = Change(gpu), threading.Thread(target=lambda: gpu.ok("cuStreamSynchronize", stream))
    waits.start()
    time.sleep(stay_s)
    change.lock(200)
    say(free=gpu.free_bytes())
    release()
    waits.join()
    say(back=there_and_back(gpu, stay_s))


def queued(gpu: Gpu, stay_s: float) -> None:
    """Queued work that ends only after some seconds: does the checkpoint wait for it?"""
    _, release = waiting_stream(gpu)
    timer = threading.Timer(max(1.0, stay_s), release)
    timer.start()
    say(back=there_and_back(gpu, stay_s))
    timer.join()


def room(gpu: Gpu, stay_s: float) -> None:
    """A restore without room: another process takes all that is free. This process is lost."""
    gpu.new("cuMemAlloc_v2", size_t(512 * MIB))
    change = Change(gpu)

    def work() -> bool:
        taker = [sys.executable, "-m", "measurements.checkpoints", "taker"]
        if not change.leave():
            return False
        with subprocess.Popen(taker, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdin
            assert other.stdout
            say(took_bytes=int(other.stdout.readline()))
            for name in ("Restore", "Restore", "Unlock"):
                change.step(name)
            other.stdin.close()
        call_after(gpu)
        say(end="back" if change.codes[-1] == 0 else "lost")
        os._exit(0)

    in_thread(work)


def call_after(gpu: Gpu) -> None:
    """Say what a call does in a process that could not come back; it may never return."""

    def call() -> None:
        gpu.enter()
        say(code_after=gpu.code("cuMemAlloc_v2", ctypes.byref(U64()), size_t(MIB)))

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    caller.join(CALL_S)
    say(call_returned=not caller.is_alive())


def taker() -> None:
    """Another process: takes the memory that is free, but for less than `room` needs, until its input ends."""
    gpu, took = Gpu(), 0
    while (size := gpu.free_bytes() - 128 * MIB) > 64 * MIB and not gpu.code(
        "cuMemAlloc_v2", ctypes.byref(U64()), size_t(size)
    ):
        took += size
    print(took, flush=True)
    sys.stdin.read()


CASES: dict[str, Callable[[Gpu, float], None]] = {
    each.__name__: each
    for each in (
        objects,
        virtual,
        managed,
        calls,
        blocked,
        queued,
        legacy_given,
        released,
        imported,
        legacy_opened,
        room,
    )
}
