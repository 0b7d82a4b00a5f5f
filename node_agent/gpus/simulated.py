"""The simulated GPUs, as the simulated driver's library describes them."""

import ctypes
from pathlib import Path

from orion.node_agent.gpus.interface import Gpu

_UUID_BYTES = 41  # "GPU-", 36 characters, NUL
_PROCESSES_MAX = 1024


class SimulatedGpus:
    """GPUs of the simulated driver; their number and size come from its own environment variables.

    Args:
        library: the simulated ``libcuda.so.1``.

    Raises:
        OSError: the library cannot be loaded.
        AttributeError: it is another driver's library.
    """

    name = "simulated"

    def __init__(self, library: Path) -> None:
        # As hook/sim/orion_sim.h declares them.
        driver = ctypes.CDLL(str(library))
        self._count = driver.orion_sim_gpu_count
        self._count.restype, self._count.argtypes = ctypes.c_int, []
        self._uuid = driver.orion_sim_gpu_uuid
        self._uuid.restype, self._uuid.argtypes = ctypes.c_int, [ctypes.c_int, ctypes.c_char_p]
        self._model = driver.orion_sim_gpu_name
        self._model.restype, self._model.argtypes = ctypes.c_char_p, [ctypes.c_int]
        self._memory = driver.orion_sim_gpu_memory
        self._memory.restype = ctypes.c_int
        self._memory.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64)]
        self._processes = driver.orion_sim_gpu_processes
        self._processes.restype = ctypes.c_int
        self._processes.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_uint32), ctypes.c_void_p, ctypes.c_int]

    def find(self) -> list[Gpu]:
        """Return the simulated GPUs."""
        return [self._gpu(index) for index in range(self._count())]

    def memory_used_bytes(self, gpu: Gpu) -> int:
        """Return the memory that all processes of the machine have allocated."""
        return self._sizes(gpu.index)[1]

    def process_ids(self, gpu: Gpu) -> list[int]:
        """Return the processes with a context, each in its own namespace."""
        found = (ctypes.c_uint32 * _PROCESSES_MAX)()
        count = self._processes(gpu.index, found, None, _PROCESSES_MAX)
        return list(found[: max(0, min(count, _PROCESSES_MAX))])

    def _gpu(self, index: int) -> Gpu:
        uuid = ctypes.create_string_buffer(_UUID_BYTES)
        self._uuid(index, uuid)
        model = self._model(index).decode("ascii", "replace")
        return Gpu(uuid.value.decode("ascii"), index, model, self._sizes(index)[0], simulated=True)

    def _sizes(self, index: int) -> tuple[int, int]:
        total, used = ctypes.c_uint64(), ctypes.c_uint64()
        self._memory(index, ctypes.byref(total), ctypes.byref(used))
        return total.value, used.value
