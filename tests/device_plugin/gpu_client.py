"""A CUDA program that launches no kernels, for simulated and real GPUs. It reads commands and answers with JSON.

begin     use the first GPU: {"gpus": [UUIDs of the visible GPUs]}
work N    N times: set 64 MiB of its memory and wait: {"seconds": ...}
"""

import ctypes
import json
import sys
import time
import uuid

_BYTES = 64 << 20


class Program:
    """One context and one buffer on the first GPU."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._memory = ctypes.c_uint64()

    def _must(self, name: str, *arguments: object) -> None:
        result = getattr(self._driver, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: CUDA result {result}")

    def begin(self) -> dict[str, object]:
        """Use the first GPU."""
        count, context = ctypes.c_int(), ctypes.c_void_p()
        self._must("cuInit", 0)
        self._must("cuDeviceGetCount", ctypes.byref(count))
        gpus = []
        for device in range(count.value):
            identity = (ctypes.c_ubyte * 16)()
            self._must("cuDeviceGetUuid_v2", identity, device)
            gpus.append(f"GPU-{uuid.UUID(bytes=bytes(identity))}")
        self._must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._must("cuCtxSetCurrent", context)
        self._must("cuMemAlloc_v2", ctypes.byref(self._memory), ctypes.c_size_t(_BYTES))
        return {"gpus": gpus}

    def work(self, times: int) -> dict[str, object]:
        """Run work on the GPU `times` times."""
        began = time.monotonic()
        for _ in range(times):
            self._must("cuMemsetD8_v2", self._memory, ctypes.c_ubyte(1), ctypes.c_size_t(_BYTES))
            self._must("cuCtxSynchronize")
        return {"seconds": time.monotonic() - began}


def main() -> None:
    """Run commands until the input ends."""
    program = Program()
    for line in sys.stdin:
        command, *numbers = line.split()
        try:
            answer = program.begin() if command == "begin" else program.work(int(numbers[0]))
        except (OSError, RuntimeError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
