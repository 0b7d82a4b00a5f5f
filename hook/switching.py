"""A switch of contexts, for what it leaves behind: a GPU that begins small kernels faster.

On an H200 the kernels of a CUDA graph begin 0.5 us after each other in a context that has had the GPU to itself for a
while, and 0.1 us once another context has had the GPU between, for however short. A decoder takes 17.3 ms in place of
18.6 from then on, under MPS 18.0 in place of 19.5. Setting a workload up in the same context, or work beside it, ends
that; another switch (0.3 ms of the GPU) brings it back. Where contexts take turns it comes by itself. In mode `mps` and
among threads of one process all work is in one context, and stays in the slower state: there `every` makes it come.
What the driver or the GPU does differently is not documented (docs/results/context-switch.md has what was tried).

    python -m orion.hook.switching      the process with the other context, about 0.5 GiB of GPU memory; lines on its
                                        standard input: "switch", "every MILLISECONDS", "rest"; each gets an answer

Only the standard library is imported, and no hook: the process is in no slot. It ends with its standard input. It makes
no context on a GPU in an exclusive compute mode, where one context keeps all others away.
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

BYTES = 4096
START_SECONDS = 30.0
ANSWER_SECONDS = 10.0
_OURS = ("LD_PRELOAD", "ORION_ROOT", "CUDA_MPS_PIPE_DIRECTORY")
NO_MPS = "/nonexistent"
_COMPUTE_MODE, _DEFAULT = 20, 0
""" CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, and the mode in which any number of processes may have contexts. """

COMMAND = (sys.executable, "-m", "orion.hook.switching")
NAME = "orion-switching"
""" As the kernel has the process's name, of at most 15 characters. """


class SwitchingError(RuntimeError):
    """No context of its own can be had on the GPU; one sentence."""


def environment(gpu: str, base: Mapping[str, str]) -> dict[str, str]:
    """Return the process's environment.

    Args:
        gpu: What CUDA_VISIBLE_DEVICES is to be; empty: as it is, and the first of them is meant.
        base: What it is made of, less the hook and MPS.
    """
    own = {name: value for name, value in base.items() if name not in _OURS}
    own["CUDA_MPS_PIPE_DIRECTORY"] = NO_MPS
    if gpu:
        own["CUDA_VISIBLE_DEVICES"] = gpu
    return own


class Switcher:
    """The process with the other context; a context manager that ends it. It waits: not for an event loop."""

    def __init__(self, gpu: str, base: Mapping[str, str] | None = None) -> None:
        """Prepare; entering the context starts the process.

        Args:
            gpu: As of `environment`.
            base: As of `environment`; None: this process's.
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
        """End the process; nothing if it has ended."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def alive(self) -> bool:
        """Say whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def switch(self) -> None:
        """Let the other context have the GPU for a moment; `SwitchingError` if the process has ended or hangs."""
        self._tell("switch")

    def every(self, milliseconds: float) -> None:
        """Do so again and again, until `rest`; errors as in `switch`."""
        self._tell(f"every {milliseconds:g}")

    def rest(self) -> None:
        """Leave the GPU alone; errors as in `switch`."""
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
            if answer.endswith(b"\n"):  # all of it: what is left of one would be taken for the next one
                return
        process.kill()
        said = process.communicate()[1].decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise SwitchingError(f"the process that switches contexts gave no answer: {said[-1]}")


class _Context:
    """A context of this process's, and one piece of work in it."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        device, mode, context, self._memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDeviceGetAttribute", ctypes.byref(mode), _COMPUTE_MODE, device)
        if mode.value != _DEFAULT:
            raise SystemExit("the GPU's compute mode is not Default: a context here would keep all others away")
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._call("cuMemAlloc_v2", ctypes.byref(self._memory), ctypes.c_size_t(BYTES))

    def work(self) -> None:
        """Use the GPU, and wait: who else had it gets it back afterwards."""
        self._call("cuMemsetD8_v2", self._memory, ctypes.c_ubyte(0), ctypes.c_size_t(BYTES))
        self._call("cuCtxSynchronize")

    def _call(self, name: str, *arguments: Any) -> None:
        if result := getattr(self._driver, name)(*arguments):
            raise SystemExit(f"{name}: CUDA error {result}")


def main() -> int:
    """Hold a context, and do what the lines on standard input say until there are no more."""
    Path("/proc/self/comm").write_text(NAME)
    try:
        context = _Context()
    except OSError as error:
        raise SystemExit(f"there is no CUDA driver: {error}") from error
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
