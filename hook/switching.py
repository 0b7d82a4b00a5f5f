"""Switches CUDA contexts, because small kernels then start faster on the GPU.

On an H200, the kernels of a CUDA graph start 0.5 us after each other in a context that has had the GPU to itself for a
while. After another context has had the GPU, however briefly, they start 0.1 us after each other. A decoder then takes
17.3 ms instead of 18.6 ms, and under MPS 18.0 ms instead of 19.5 ms. The effect ends when the process sets up a
workload in the same context, or when other work runs beside it. Another switch of contexts takes 0.3 ms of the GPU and
restores the effect. When contexts are time-sliced, the switches happen by themselves. In mode `mps` and among threads
of one process, all work is in one context and stays in the slower state; there, the command `every` (see below) causes
switches. NVIDIA does not document what the driver or the GPU does differently (docs/results/context-switch.md lists
what we tried).

    python -m orion.hook.switching      the process with the other context, about 0.5 GiB of GPU memory; it reads lines
                                        from standard input: "switch", "every MILLISECONDS", "rest"; it answers each

The process imports only the standard library and preloads no hook, so it has no slot. It ends when its standard input
ends. It makes no context on a GPU in an exclusive compute mode, because that context would exclude all other processes.
"""

import contextlib
import ctypes
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from orion.errors import Unavailable

BYTES = 4096
START_SECONDS = 30.0
ANSWER_SECONDS = 10.0
_OURS = ("LD_PRELOAD", "ORION_ROOT", "CUDA_MPS_PIPE_DIRECTORY")
NO_MPS = "/nonexistent"
_COMPUTE_MODE, _DEFAULT = 20, 0
""" CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, and the mode that lets any number of processes have contexts. """

COMMAND = (sys.executable, "-Pm", "orion.hook.switching")
NAME = "orion-switching"
""" The process's name in the kernel, at most 15 characters. """


def environment(gpu: str, base: Mapping[str, str]) -> dict[str, str]:
    """Return the process's environment.

    Args:
        gpu: The value for CUDA_VISIBLE_DEVICES. If empty, the variable stays, and the process uses the first GPU.
        base: The environment to start from; the hook and MPS are removed from it.
    """
    own = {name: value for name, value in base.items() if name not in _OURS}
    own["CUDA_MPS_PIPE_DIRECTORY"] = NO_MPS
    if gpu:
        own["CUDA_VISIBLE_DEVICES"] = gpu
    return own


class Switcher:
    """The process with the other context. A context manager that ends the process.

    Its methods block, so do not call them in an event loop.
    """

    def __init__(self, gpu: str, base: Mapping[str, str] | None = None) -> None:
        """Prepare; entering the context manager starts the process.

        Args:
            gpu: As in `environment`.
            base: As in `environment`; None: this process's environment.
        """
        self._environment = environment(gpu, os.environ if base is None else base)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            COMMAND,
            env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            self._await_answer(START_SECONDS)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """End the process; do nothing if it has ended."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def alive(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def switch(self) -> None:
        """Give the GPU to the other context for a moment; `Unavailable` if the process has ended or hangs."""
        self._tell("switch")

    def every(self, milliseconds: float) -> None:
        """Switch again and again until `rest`; errors as in `switch`."""
        self._tell(f"every {milliseconds:g}")

    def rest(self) -> None:
        """Stop the switches; errors as in `switch`."""
        self._tell("rest")

    def _tell(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        self._await_answer(ANSWER_SECONDS)

    def _await_answer(self, seconds: float) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        descriptor, end, answer = process.stdout.fileno(), time.monotonic() + seconds, b""
        while select.select([descriptor], [], [], max(0, end - time.monotonic()))[0]:
            read = os.read(descriptor, 64)
            if not read:
                break
            answer += read
            if answer.endswith(b"\n"):  # read the whole answer: a rest of it would look like the next answer
                return
        process.kill()
        output = process.communicate()[1].decode(errors="replace").strip().splitlines() or ["it printed nothing"]
        raise Unavailable(f"the process that switches contexts gave no answer: {output[-1]}")


class _Context:
    """One context of this process, and one piece of work in it."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        device, mode, context, self._memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDeviceGetAttribute", ctypes.byref(mode), _COMPUTE_MODE, device)
        if mode.value != _DEFAULT:
            raise SystemExit(
                "the GPU's compute mode is not Default, so a context here would exclude all others; set it to Default"
            )
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._call("cuMemAlloc_v2", ctypes.byref(self._memory), ctypes.c_size_t(BYTES))

    def work(self) -> None:
        """Use the GPU and wait. The context that had the GPU before gets it back afterwards."""
        self._call("cuMemsetD8_v2", self._memory, ctypes.c_ubyte(0), ctypes.c_size_t(BYTES))
        self._call("cuCtxSynchronize")

    def _call(self, name: str, *arguments: Any) -> None:
        if result := getattr(self._driver, name)(*arguments):
            raise SystemExit(f"{name}: CUDA error {result}")


def main() -> int:
    """Hold a context and execute the lines on standard input until it ends."""
    Path("/proc/self/comm").write_text(NAME)
    try:
        context = _Context()
    except OSError as error:
        raise SystemExit(f"cannot load the CUDA driver: {error}") from error
    pause: float | None = None
    print("ready", flush=True)
    while True:
        if not select.select([0], [], [], pause)[0]:
            context.work()
            continue
        lines = os.read(0, 4096).decode().splitlines()
        if not lines:
            return 0
        for line in lines:
            word, _, milliseconds = line.partition(" ")
            pause = float(milliseconds) / 1e3 if word == "every" else None
            if word == "switch":
                context.work()
            print(word, flush=True)


if __name__ == "__main__":
    sys.exit(main())
