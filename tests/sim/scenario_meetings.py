"""Kernels that wait for kernels of other GPUs. Real time passes here."""

import ctypes
import threading
import time
from pathlib import Path

from cuda.bindings import driver as cuda

from tests.sim.cuda_client import Device, main, ok
from tests.waiting import eventually

IMAGE = b"orion-sim 1\nkernel meet duration_us=@0 sms=20 params=8,8,4 meets=@1\n"


def a_thread_that_waits_for_a_kernel_is_woken_when_the_kernel_has_met_its_peer() -> None:
    # Only the word says when the kernel ends, so the thread sleeps without an end. If nothing woke it, it would look
    # after a second. A loaded machine may be late once, but not each time.
    stream = Device().stream()
    meet = ok(cuda.cuModuleGetFunction(ok(cuda.cuModuleLoadData(IMAGE)), b"meet"))
    word = ctypes.c_uint32()
    took = []
    for _ in range(4):
        word.value = 0
        parameters = ((100, ctypes.addressof(word), 2), (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32))
        ok(cuda.cuLaunchKernel(meet, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0))
        eventually(lambda: word.value == 1, "the kernel begins")
        waits = threading.Thread(target=lambda: ok(cuda.cuStreamSynchronize(stream)))
        waits.start()
        eventually(lambda: _sleeps(waits), "the thread sleeps")  # noqa: B023
        began = time.monotonic()
        word.value += 1
        waits.join()
        took.append(time.monotonic() - began)
    assert min(took) < 0.5, took


def _sleeps(thread: threading.Thread) -> bool:
    stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "S"


if __name__ == "__main__":
    main(globals())
