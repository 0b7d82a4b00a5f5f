"""An NVML library that does what a test sets, with the functions and types of nvidia-ml-py.

There is no NVIDIA driver where these tests run. The tests in tests/gpu check the answers of a real driver.
"""

# ruff: noqa: N802, N815  (the library's own names)

import types
from dataclasses import dataclass, field


class NVMLError(Exception):
    """NVML's exception with the library's error number, as in nvidia-ml-py."""

    def __init__(self, value: int) -> None:
        super().__init__(f"error {value} of the scripted library")
        self.value = value


UNINITIALIZED, NOT_SUPPORTED, TIMEOUT, DRIVER_NOT_LOADED = 1, 3, 10, 9
LOST, RESET_REQUIRED, MISMATCH, UNKNOWN = 15, 16, 18, 999
XID, DOUBLE_BIT = 8, 2
NO_ACTION, RESET, REBOOT, DRAIN_P2P = 0, 1, 2, 3


@dataclass
class ScriptedGpu:
    """One GPU; handles are numbers."""

    trouble: int = 0
    """ The error of every call about this GPU; 0: none. """
    mig: bool = False
    mig_trouble: int = 0
    """ The error of calls about MIG only; 0: none. """
    minor: int | None = None
    """ None: the handle plus four. """
    minor_trouble: int = 0
    """ The error of calls about the minor number only; 0: none. """
    action: int = NO_ACTION
    used: int = 5
    processes: list[int] = field(default_factory=lambda: [7])
    held: dict[int, int] = field(default_factory=dict)
    """ Bytes by process; a process that is missing here: the driver does not say what it holds. """
    peers: tuple[int, ...] = ()


class ScriptedNvml(types.ModuleType):
    """The module `pynvml`; a test may change its attributes."""

    NVMLError = NVMLError
    NVML_SUCCESS = 0
    NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_TIMEOUT = NOT_SUPPORTED, TIMEOUT
    NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED, NVML_ERROR_LIB_RM_VERSION_MISMATCH = (
        LOST,
        RESET_REQUIRED,
        MISMATCH,
    )
    NVML_GPU_RECOVERY_ACTION_NONE, NVML_GPU_RECOVERY_ACTION_NODE_REBOOT = NO_ACTION, REBOOT
    NVML_GPU_RECOVERY_ACTION_DRAIN_P2P = DRAIN_P2P
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 274
    NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_STATUS_OK = 2, 0
    nvmlEventTypeXidCriticalError, nvmlEventTypeDoubleBitEccError = XID, DOUBLE_BIT

    def __init__(self, *gpus: ScriptedGpu) -> None:
        super().__init__("pynvml")
        self.gpus = list(gpus)
        self.away = 0
        """ The error of nvmlInit; 0: none. """
        self.begun = 0
        self.events: list[tuple[int, int, int]] = []
        """ Handle, type and number of events that are not read yet. """
        self.registered: list[int] = []
        self.sets: list[list[int]] = []
        """ The handles that are registered in each event set that is not freed. """

    def nvmlInit(self) -> None:
        if self.away:
            raise NVMLError(self.away)
        self.begun += 1

    def nvmlShutdown(self) -> None:
        self.begun = 0

    def nvmlDeviceGetCount(self) -> int:
        self._check()
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        self._check()
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        self._gpu(handle)
        return uuid(handle)

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        self._gpu(handle)
        return b"NVIDIA H200"

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        self._gpu(handle)
        return 9, 0

    def nvmlSystemGetDriverVersion(self) -> str:
        self._check()
        return "580.95.05"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(total=100, used=self._gpu(handle).used)

    def nvmlDeviceGetMinorNumber(self, handle: int) -> int:
        gpu = self._gpu(handle)
        if gpu.minor_trouble:
            raise NVMLError(gpu.minor_trouble)
        return handle + 4 if gpu.minor is None else gpu.minor

    def nvmlDeviceGetPciInfo(self, handle: int) -> types.SimpleNamespace:
        self._gpu(handle)
        return types.SimpleNamespace(busId=f"00000000:3{handle}:00.0")

    def nvmlDeviceGetP2PStatus(self, handle: int, peer: int, index: int) -> int:
        assert index == self.NVML_P2P_CAPS_INDEX_NVLINK
        return 0 if peer in self._gpu(handle).peers else 5

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[types.SimpleNamespace]:
        gpu = self._gpu(handle)
        return [types.SimpleNamespace(pid=pid, usedGpuMemory=gpu.held.get(pid)) for pid in gpu.processes]

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        gpu = self._gpu(handle)
        if gpu.mig_trouble:
            raise NVMLError(gpu.mig_trouble)
        return [int(gpu.mig), 1]

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[int]) -> list[types.SimpleNamespace]:
        assert fields == [self.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
        value = types.SimpleNamespace(uiVal=self._gpu(handle).action)
        return [types.SimpleNamespace(nvmlReturn=0, value=value)]

    def nvmlEventSetCreate(self) -> list[int]:
        self._check()
        self.sets.append([])
        return self.sets[-1]

    def nvmlEventSetFree(self, events: list[int]) -> None:
        self._check()
        self.sets = [each for each in self.sets if each is not events]

    def nvmlDeviceGetSupportedEventTypes(self, handle: int) -> int:
        self._gpu(handle)
        return 0x1FF

    def nvmlDeviceRegisterEvents(self, handle: int, types: int, events: list[int]) -> None:
        assert types == XID | DOUBLE_BIT
        self.registered.append(handle)
        events.append(handle)

    def nvmlEventSetWait_v2(self, events: list[int], milliseconds: int) -> types.SimpleNamespace:
        assert milliseconds == 0
        lost = [handle for handle in events if handle >= len(self.gpus) or self.gpus[handle].trouble == LOST]
        readable = [event for event in self.events if event[0] in (lost or events)]  # a lost GPU hides those of others
        if not readable:
            raise NVMLError(LOST if lost else TIMEOUT)
        self.events.remove(readable[0])
        handle, kind, number = readable[0]
        return types.SimpleNamespace(device=handle, eventType=kind, eventData=number)

    def _check(self) -> None:
        if not self.begun:
            raise NVMLError(UNINITIALIZED)
        if self.away:
            raise NVMLError(self.away)

    def _gpu(self, handle: int) -> ScriptedGpu:
        self._check()
        if handle >= len(self.gpus):
            raise NVMLError(LOST)  # the GPU was removed
        gpu = self.gpus[handle]
        if gpu.trouble:
            raise NVMLError(gpu.trouble)
        return gpu


def uuid(index: int) -> str:
    """Return the UUID of a scripted GPU."""
    return f"GPU-00000000-0000-4000-8000-{index:012d}"
