"""A CUDA program for the tests of MPS. It reads one command per line, and answers each with a line of JSON.

    python mps_client.py USER

An error is an answer, too: {"error": code, "call": name}. The commands and their answers:

begin     make a context: {"mps": whether the program is a client of an MPS server, "seconds": ...}
work N    N times, set 64 MiB of memory and wait: {"done": n, "seconds": ...}
fault     launch a kernel that writes to an invalid address
"""

import ctypes
import json
import os
import sys
import time

_BYTES = 64 << 20
_MPS_ENABLED = 133
_PR_SET_DUMPABLE = 4
_PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry fault() { .reg .u64 %a; .reg .u32 %v; mov.u64 %a, 64; mov.u32 %v, 1; st.global.u32 [%a], %v; ret; }
"""


class CudaError(RuntimeError):
    """A driver call has failed."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: CUDA error {code}")
        self.call, self.code = call, code


class Program:
    """One context and one buffer."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._memory = ctypes.c_uint64()

    def call(self, name: str, *arguments: object) -> None:
        """Call the driver."""
        code = getattr(self._driver, name)(*arguments)
        if code != 0:
            raise CudaError(name, code)

    def begin(self) -> dict[str, object]:
        """Make a context."""
        began = time.monotonic()
        count, context, mps = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGetCount", ctypes.byref(count))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuMemAlloc_v2", ctypes.byref(self._memory), ctypes.c_size_t(_BYTES))
        self.call("cuDeviceGetAttribute", ctypes.byref(mps), _MPS_ENABLED, 0)
        seconds = round(time.monotonic() - began, 3)
        return {"mps": mps.value, "gpus": count.value, "user": os.getuid(), "pid": os.getpid(), "seconds": seconds}

    def work(self, times: int) -> dict[str, object]:
        """Put work on the GPU, and wait for its end."""
        began = time.monotonic()
        for _ in range(times):
            self.call("cuMemsetD8_v2", self._memory, ctypes.c_ubyte(1), ctypes.c_size_t(_BYTES))
            self.call("cuCtxSynchronize")
        return {"done": times, "seconds": round(time.monotonic() - began, 3)}

    def fault(self) -> dict[str, object]:
        """Write to an invalid address."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(_PTX))
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"fault")
        self.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
        self.call("cuCtxSynchronize")
        return {"done": 1}


def become(user: int) -> None:
    """Change to the user. The program starts as root, because another user may not be allowed to read this file."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def main() -> None:
    """Execute commands until the input ends."""
    program = None
    if user := int(sys.argv[1]):
        become(user)
    for line in sys.stdin:
        command, *numbers = line.split()
        try:
            program = program or Program()
            answer = getattr(program, command)(*map(int, numbers))
        except CudaError as error:
            answer = {"error": error.code, "call": error.call}
        except (OSError, AttributeError) as error:
            answer = {"error": -1, "call": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
