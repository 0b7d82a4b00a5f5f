"""One switch of contexts before each measurement, so that all are made in the same state of the GPU.

On an H200 small kernels of a process whose context has kept the GPU to itself since it was set up begin 0.4 us apart.
Once another process's context has had the GPU, for however short, it is 0.1 us, and stays so: a decoder takes 17.2 ms
in place of 18.6 for ever after, under MPS 18.0 in place of 19.5 (docs/results/context-switch.md). What is measured
alone or where contexts never take turns (MPS, threads) would be 7 to 10 % slower or not by what happened before.

    python -m orion.bench.settling      the process that switches: a line on its standard input, a line when done

Refused: to leave it to chance which state a run has, and a process started for each switch (0.2 s of the host's work).
"""

import contextlib
import ctypes
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

BYTES = 4096
START_SECONDS = 30.0
SWITCH_SECONDS = 10.0


class SettlingError(RuntimeError):
    """The GPU cannot be brought into the state; one sentence."""


class Settler:
    """A process with a context of its own on one GPU, idle but for `settle`; a context manager that ends it."""

    def __init__(self, environment: Mapping[str, str], gpu: str) -> None:
        """Prepare; entering the context starts the process.

        Args:
            environment: Of unhooked processes that are no clients of MPS.
            gpu: The GPU's UUID.
        """
        self._environment = {**environment, "CUDA_VISIBLE_DEVICES": gpu}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        words = [sys.executable, "-m", "orion.bench.settling"]
        self._process = subprocess.Popen(
            words, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            self._await_line(START_SECONDS)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.communicate()

    def settle(self) -> None:
        """Let the process's context have the GPU for a moment, with nothing of anybody's in flight.

        Raises:
            SettlingError: The process has ended or does not answer.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(b"switch\n")
            self._process.stdin.flush()
        self._await_line(SWITCH_SECONDS)

    def _await_line(self, seconds: float) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        if _readable(process.stdout.fileno(), seconds) and os.read(process.stdout.fileno(), 64):
            return
        process.kill()
        said = process.communicate()[1].decode(errors="replace").strip().splitlines() or ["(it said nothing)"]
        raise SettlingError(f"the process that switches contexts before each run gave no answer: {said[-1]}")


def _readable(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def _checked(driver: Any, name: str, *arguments: Any) -> None:
    if result := getattr(driver, name)(*arguments):
        raise SystemExit(f"{name}: CUDA error {result}")


def main() -> int:
    """Hold a context; one memset in it for each line of standard input."""
    from orion.bench.worker_process import quiet_process

    quiet_process()
    driver = ctypes.CDLL("libcuda.so.1")
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    _checked(driver, "cuInit", 0)
    _checked(driver, "cuDeviceGet", ctypes.byref(device), 0)
    _checked(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    _checked(driver, "cuCtxSetCurrent", context)
    _checked(driver, "cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(BYTES))
    print("ready", flush=True)
    for _ in sys.stdin:
        _checked(driver, "cuMemsetD8_v2", memory, ctypes.c_ubyte(0), ctypes.c_size_t(BYTES))
        _checked(driver, "cuCtxSynchronize")
        print("switched", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
