"""The simulated GPUs, from the simulated driver's library."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orion.node_agent.gpus import xids
from orion.node_agent.gpus.interface import HEALTHY, Gpu, Health

_UUID_BYTES = 41  # "GPU-", 36 characters, NUL
_PROCESSES_MAX = 1024
_LOST = Health(False, "GPULost", "the simulated GPU is lost; `python -m orion.hook.simulated restore` brings it back")


class SimulatedGpus:
    """GPUs of the simulated driver; their number and size come from the driver's environment variables.

    Args:
        library: the simulated ``libcuda.so.1``. If it lacks the functions for health, MIG, NUMA or NVLink, its GPUs are
            healthy, without MIG and not connected.

    Raises:
        OSError: the library cannot be loaded.
        AttributeError: it is another driver's library.
    """

    name = "simulated"

    def __init__(self, library: Path) -> None:
        # The functions are declared in hook/sim/orion_sim.h.
        driver = ctypes.CDLL(str(library))
        number, numbers, sizes = ctypes.c_int, ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_uint64)
        self._count = _function(driver, "count")
        self._uuid = _function(driver, "uuid", number, ctypes.c_char_p)
        self._model = _function(driver, "name", number, result=ctypes.c_char_p)
        self._memory = _function(driver, "memory", number, sizes, sizes)
        self._processes = _function(driver, "processes", number, numbers, ctypes.c_void_p, number)
        self._mig = _function(driver, "mig", number, otherwise=0)
        self._numa = _function(driver, "numa", number, otherwise=-1)
        self._linked = _function(driver, "linked", number, number, otherwise=0)
        self._health = _function(driver, "health", number, sizes, numbers, otherwise=0)
        self._events_known: dict[int, int] = {gpu: self._look(gpu)[1] for gpu in range(self._count())}

    def find(self) -> list[Gpu]:
        """Return the simulated GPUs."""
        uuids = [self._uuid_of(index) for index in range(self._count())]
        return [self._gpu(index, uuids) for index in range(len(uuids))]

    def memory_used_bytes(self, gpu: Gpu) -> int:
        """Return the memory that all processes of the machine have allocated."""
        return self._sizes(gpu.index)[1]

    def memory_free_bytes(self, gpu: Gpu) -> int | None:
        """Return the memory that no process has allocated."""
        total, used = self._sizes(gpu.index)
        return max(0, total - used)

    def process_ids(self, gpu: Gpu) -> list[int]:
        """Return the processes with a context that are visible in the agent's pid namespace."""
        found = (ctypes.c_uint32 * _PROCESSES_MAX)()
        count = self._processes(gpu.index, found, None, _PROCESSES_MAX)
        return [process for process in found[: max(0, min(count, _PROCESSES_MAX))] if process]

    def memory_of_processes(self, gpu: Gpu) -> dict[int, int | None] | None:
        """Return what each process holds that is visible in the agent's pid namespace."""
        found, held = (ctypes.c_uint32 * _PROCESSES_MAX)(), (ctypes.c_uint64 * _PROCESSES_MAX)()
        count = self._processes(gpu.index, found, held, _PROCESSES_MAX)
        both = zip(found[: min(count, _PROCESSES_MAX)], held, strict=False)
        return {process: used for process, used in both if process} if count >= 0 else None

    def health(self, gpu: Gpu) -> Health:
        """Return what is wrong now, or went wrong since the last call; Xids that programs cause are skipped."""
        answer, events, xid = self._look(gpu.index)
        has_new = events > self._events_known.get(gpu.index, 0)
        self._events_known[gpu.index] = events
        if answer == 1:
            return _LOST
        if has_new and xid not in xids.CAUSED_BY_PROGRAMS:
            return Health(False, f"Xid{xid}", xids.sentence(xid))
        return HEALTHY

    def mig_enabled(self, gpu: Gpu) -> bool:
        """Return whether this GPU has MIG enabled."""
        return bool(self._mig(gpu.index) == 1)

    def needs_restart(self) -> str:
        """Return an empty string."""
        return ""

    def close(self) -> None:
        """Do nothing."""

    def _gpu(self, index: int, uuids: list[str]) -> Gpu:
        node = self._numa(index)
        return Gpu(
            uuids[index],
            index,
            self._model(index).decode("ascii", "replace"),
            self._sizes(index)[0],
            simulated=True,
            minor=index,
            numa_node=None if node < 0 else node,
            linked=tuple(uuid for other, uuid in enumerate(uuids) if self._linked(index, other) == 1),
        )

    def _uuid_of(self, index: int) -> str:
        text = ctypes.create_string_buffer(_UUID_BYTES)
        self._uuid(index, text)
        return text.value.decode("ascii")

    def _look(self, index: int) -> tuple[int, int, int]:
        events, xid = ctypes.c_uint64(), ctypes.c_uint32()
        answer = self._health(index, ctypes.byref(events), ctypes.byref(xid))
        return answer, events.value, xid.value

    def _sizes(self, index: int) -> tuple[int, int]:
        total, used = ctypes.c_uint64(), ctypes.c_uint64()
        self._memory(index, ctypes.byref(total), ctypes.byref(used))
        return total.value, used.value


def _function(
    driver: ctypes.CDLL, name: str, *arguments: Any, result: Any = ctypes.c_int, otherwise: int | None = None
) -> Callable[..., Any]:
    """Return a function of the library with its types set.

    If the library lacks the function and `otherwise` is given, return a function that always returns `otherwise`.
    """
    if otherwise is not None and not hasattr(driver, f"orion_sim_gpu_{name}"):
        return lambda *_: otherwise
    function = getattr(driver, f"orion_sim_gpu_{name}")
    function.restype, function.argtypes = result, list(arguments)
    return function  # type: ignore[no-any-return]
