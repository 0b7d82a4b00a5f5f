"""Checkpoint and restore of a process by itself: its states, what survives, and who waits."""

import ctypes
import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuda.bindings import driver as cuda

from tests.sim.checkpoint_client import (
    DRIVER,
    ME,
    MIB,
    STATE,
    Caller,
    checkpoint,
    come_back,
    contents,
    exportable,
    leave,
    listed,
    lock,
    mapped,
    restore,
    state,
    unlock,
    used_bytes,
)
from tests.sim.cuda_client import Device, fails, main, ok
from tests.waiting import eventually


def the_states_follow_one_another() -> None:
    fails(cuda.cuCheckpointProcessGetState(ME), "NOT_INITIALIZED")
    Device()
    for call in (checkpoint, restore, unlock):
        fails(call(), "ILLEGAL_STATE")
    assert state() == STATE.CU_PROCESS_STATE_RUNNING
    ok(lock())
    assert state() == STATE.CU_PROCESS_STATE_LOCKED
    for call in (lock, restore):
        fails(call(), "ILLEGAL_STATE")
    ok(checkpoint())
    assert state() == STATE.CU_PROCESS_STATE_CHECKPOINTED
    for call in (lock, checkpoint, unlock):
        fails(call(), "ILLEGAL_STATE")
    ok(restore())
    assert state() == STATE.CU_PROCESS_STATE_LOCKED
    fails(restore(), "ILLEGAL_STATE")
    ok(unlock())
    assert state() == STATE.CU_PROCESS_STATE_RUNNING


def another_process_and_wrong_arguments_are_refused() -> None:
    Device()
    other = os.getppid()
    fails(cuda.cuCheckpointProcessGetState(other), "NOT_SUPPORTED")
    fails(cuda.cuCheckpointProcessLock(other, None), "NOT_SUPPORTED")
    fails(cuda.cuCheckpointProcessCheckpoint(other, None), "NOT_SUPPORTED")
    fails(cuda.cuCheckpointProcessRestore(other, None), "NOT_SUPPORTED")
    fails(cuda.cuCheckpointProcessUnlock(other, None), "NOT_SUPPORTED")
    fails(cuda.cuCheckpointProcessGetRestoreThreadId(other), "NOT_SUPPORTED")
    fails(cuda.cuCheckpointProcessGetState(0), "INVALID_VALUE")
    words = (ctypes.c_uint32 * 16)(0, 1)  # the second word is reserved
    assert DRIVER.cuCheckpointProcessLock(ME, words) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    assert state() == STATE.CU_PROCESS_STATE_RUNNING
    thread = ok(cuda.cuCheckpointProcessGetRestoreThreadId(ME))
    assert thread != ME
    assert Path(f"/proc/self/task/{thread}").exists()


def has(log: Any, entries: int) -> bool:
    return bool(log[0] == entries)


def contents_and_objects_survive_three_changes() -> None:
    gpu = Device()
    stream, event = gpu.stream(), ok(cuda.cuEventCreate(0))
    plain, pooled = ok(cuda.cuMemAlloc(3 * MIB)), ok(cuda.cuMemAllocAsync(MIB, stream))
    physical = ok(cuda.cuMemCreate(2 * MIB, exportable(), 0))
    virtual, pinned = mapped(physical, 2 * MIB), ok(cuda.cuMemAllocHost(MIB))
    patterns = {address: os.urandom(MIB) for address in (plain, pooled, virtual)}
    for address, pattern in patterns.items():
        ok(cuda.cuMemcpyHtoD(address, pattern, MIB))
    target = ok(cuda.cuMemAlloc(MIB))
    log = (ctypes.c_uint64 * 16)()
    ok(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    ok(cuda.cuMemcpyDtoDAsync(target, plain, MIB, stream))
    kinds = (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64)
    values = ((10, 1, ctypes.addressof(log), 7), kinds)
    ok(cuda.cuLaunchKernel(gpu.logged, 1, 1, 1, 1, 1, 1, 0, stream, values, 0))
    graph = ok(cuda.cuGraphInstantiate(ok(cuda.cuStreamEndCapture(stream)), 0))
    total, pool = used_bytes(), ok(cuda.cuDeviceGetDefaultMemPool(gpu.device))
    for change in range(1, 4):
        leave()
        assert (used_bytes(), listed()) == (0, 0)
        ctypes.memset(pinned, change, MIB)  # host memory stays usable
        come_back()
        assert (used_bytes(), listed()) == (total, 1)
        for address, pattern in patterns.items():
            assert contents(address, MIB) == pattern
        ok(cuda.cuMemsetD8(target, 0, MIB))
        ok(cuda.cuGraphLaunch(graph, stream))
        ok(cuda.cuEventRecord(event, stream))
        ok(cuda.cuEventSynchronize(event))
        eventually(functools.partial(has, log, change), "the graph's kernel has run once more")
        assert contents(target, MIB) == patterns[plain]
        gpu.launch(stream, 10, 1)
        ok(cuda.cuStreamSynchronize(stream))
        ok(cuda.cuMemcpyDtoH(again := bytearray(1), pinned, 1))
        assert again[0] == change
        ok(cuda.cuMemFreeAsync(ok(cuda.cuMemAllocFromPoolAsync(MIB, pool, stream)), stream))
    ok(cuda.cuMemFree(plain))
    assert used_bytes() < total


def all_gpus_of_the_process_change() -> None:
    for number in (0, 1):
        Device(number)
        ok(cuda.cuMemAlloc((number + 1) * 100 * MIB))
    leave()
    assert (used_bytes(0), used_bytes(1), listed(0), listed(1)) == (0, 0, 0, 0)
    come_back()
    assert (used_bytes(0), used_bytes(1), listed(0), listed(1)) == (100 * MIB, 200 * MIB, 1, 1)


def calls_of_every_kind_wait_until_the_process_is_unlocked() -> None:
    gpu = Device()
    stream, event, memory = gpu.stream(), gpu.mark(None), ok(cuda.cuMemAlloc(MIB))
    calls: list[Callable[[], tuple[Any, ...]]] = [
        lambda: cuda.cuMemAlloc(MIB),
        lambda: cuda.cuMemFree(memory),
        cuda.cuMemGetInfo,
        lambda: cuda.cuStreamSynchronize(stream),
        lambda: cuda.cuStreamQuery(stream),
        lambda: cuda.cuEventQuery(event),
        lambda: cuda.cuEventRecord(event, stream),
        lambda: gpu.try_launch(stream, 10),
        cuda.cuCtxGetCurrent,
        cuda.cuCtxSynchronize,
        lambda: cuda.cuDeviceGet(0),
        lambda: cuda.cuInit(0),
    ]
    gates = [threading.Event() for _ in calls]

    def after(gate: threading.Event, call: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
        def run() -> tuple[Any, ...]:
            assert gate.wait(20)
            return call()

        return run

    callers = [Caller(gpu.context, after(gate, call)) for gate, call in zip(gates, calls, strict=True)]
    ok(lock())
    for gate in gates:
        gate.set()
    assert all(caller.waits_in_the_driver() for caller in callers)
    ok(checkpoint())
    ok(restore())
    assert all(caller.waits_in_the_driver() for caller in callers)
    ok(unlock())
    for caller in callers:
        caller.join(20)
        ok(caller.answer)


def a_call_that_waits_for_work_makes_the_lock_time_out() -> None:
    gpu = Device()
    stream, word = gpu.stream(), ok(cuda.cuMemHostAlloc(4096, 0))
    ctypes.memset(word, 0, 4096)
    ok(cuda.cuStreamWaitValue32(stream, word, 1, 0))
    caller = Caller(gpu.context, lambda: cuda.cuStreamSynchronize(stream))
    eventually(caller.waits_in_the_driver, "the thread synchronises")
    fails(lock(50), "NOT_READY")
    assert state() == STATE.CU_PROCESS_STATE_RUNNING
    ok(cuda.cuMemGetInfo())
    ctypes.c_uint32.from_address(int(word)).value = 1
    caller.join(20)
    ok(caller.answer)
    ok(lock(20_000))
    ok(unlock())


def a_lock_waits_for_the_calls_in_progress() -> None:
    gpu = Device()
    stream, word = gpu.stream(), ok(cuda.cuMemHostAlloc(4096, 0))
    ctypes.memset(word, 0, 4096)
    ok(cuda.cuStreamWaitValue32(stream, word, 1, 0))
    waits = Caller(gpu.context, lambda: cuda.cuStreamSynchronize(stream))
    eventually(waits.waits_in_the_driver, "the thread synchronises")
    locks = Caller(None, lock)
    assert locks.waits_in_the_driver()
    assert state() == STATE.CU_PROCESS_STATE_RUNNING
    later = Caller(None, lambda: cuda.cuDeviceGet(0))
    assert later.waits_in_the_driver()  # a call that begins meanwhile waits, too
    ctypes.c_uint32.from_address(int(word)).value = 1
    locks.join(20)
    ok(locks.answer)
    assert state() == STATE.CU_PROCESS_STATE_LOCKED
    ok(unlock())
    later.join(20)
    ok(later.answer)


def a_checkpoint_completes_the_work_first() -> None:
    gpu = Device()
    stream = gpu.stream()
    log = (ctypes.c_uint64 * 16)()
    kinds = (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64)
    for number in range(3):
        values = ((20_000, 132, ctypes.addressof(log), number), kinds)
        ok(cuda.cuLaunchKernel(gpu.logged, 1, 1, 1, 1, 1, 1, 0, stream, values, 0))
    ok(lock())
    ok(checkpoint())
    assert list(log)[:4] == [3, 0, 1, 2]
    come_back()
    ok(cuda.cuStreamQuery(stream))


def a_forked_child_does_not_wait() -> None:
    Device()
    ok(lock())
    child = os.fork()
    if not child:
        os._exit(int(cuda.cuMemGetInfo()[0]) + int(cuda.cuCheckpointProcessUnlock(os.getpid(), None)[0]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2 * cuda.CUresult.CUDA_ERROR_NOT_INITIALIZED
    ok(unlock())


def a_change_takes_the_time_that_the_machine_says(lock_us: str, out_ms: str, back_ms: str) -> None:
    gpu = Device()
    stream = gpu.stream()
    ok(cuda.cuMemAlloc(2048 * MIB))
    before = gpu.mark(stream)
    ok(cuda.cuEventSynchronize(before))
    leave()
    come_back()
    took = gpu.between(before, gpu.mark(stream))
    wanted = int(lock_us) + 2 * 1000 * (int(out_ms) + int(back_ms))
    assert wanted <= took < wanted + 100, took


if __name__ == "__main__":
    main(globals())
