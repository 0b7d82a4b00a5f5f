"""What a checkpoint refuses, and what loses a process at its restore."""

import os
from pathlib import Path

from cuda.bindings import driver as cuda

from orion.hook.simulated import Machine
from tests.sim.checkpoint_client import (
    DRIVER,
    MIB,
    STATE,
    checkpoint,
    come_back,
    contents,
    exportable,
    is_lost,
    leave,
    lock,
    mapped,
    state,
    unlock,
    used_bytes,
)
from tests.sim.cuda_client import Device, fails, main, ok


def managed_memory_is_refused_and_the_process_goes_on() -> None:
    Device()
    managed = ok(cuda.cuMemAllocManaged(MIB, 1))
    ok(lock())
    fails(checkpoint(), "NOT_SUPPORTED")
    assert state() == STATE.CU_PROCESS_STATE_LOCKED
    assert used_bytes() >= MIB
    ok(unlock())
    ok(cuda.cuMemFree(managed))
    leave()
    come_back()


def memory_with_a_legacy_handle_is_refused() -> None:
    Device()
    memory = ok(cuda.cuMemAlloc(MIB))
    pattern = os.urandom(MIB)
    ok(cuda.cuMemcpyHtoD(memory, pattern, MIB))
    handle = ok(cuda.cuIpcGetMemHandle(memory))
    fails(cuda.cuIpcOpenMemHandle(handle, 1), "INVALID_CONTEXT")  # of this process
    assert contents(memory, MIB) == pattern
    ok(lock())
    fails(checkpoint(), "NOT_SUPPORTED")
    ok(unlock())
    ok(cuda.cuMemFree(memory))
    leave()
    come_back()


def exported_memory_is_allowed() -> None:
    Device()
    kind = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    memory = ok(cuda.cuMemCreate(2 * MIB, exportable(), 0))
    os.close(int(ok(cuda.cuMemExportToShareableHandle(memory, kind, 0))))
    leave()
    come_back()


def imported_memory_loses_the_process_at_its_restore() -> None:
    Device()
    kind = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    memory = ok(cuda.cuMemCreate(2 * MIB, exportable(), 0))
    ok(cuda.cuMemcpyHtoD(mapped(memory, 2 * MIB), b"word", 4))
    file = int(ok(cuda.cuMemExportToShareableHandle(memory, kind, 0)))
    imported = ok(cuda.cuMemImportFromShareableHandle(file, kind))
    before = used_bytes()
    assert contents(mapped(imported, 2 * MIB), 4) == b"word"
    ok(cuda.cuMemRelease(imported))
    assert used_bytes() == before
    leave()
    is_lost("OPERATING_SYSTEM")


def injected_faults_hold_for_one_change() -> None:
    Device()
    ok(cuda.cuMemAlloc(MIB))
    machine = Machine(Path("libcuda.so.1"))
    machine.fail_checkpoint(cuda.CUresult.CUDA_ERROR_NOT_SUPPORTED)
    ok(lock())
    fails(checkpoint(), "NOT_SUPPORTED")
    ok(checkpoint())
    machine.fail_restore(cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY)
    is_lost("OUT_OF_MEMORY")


def a_lost_gpu_is_refused_and_loses_who_is_away() -> None:
    Device()
    machine = Machine(Path("libcuda.so.1"))
    machine.lose(0)
    ok(lock())
    fails(checkpoint(), "UNKNOWN")
    machine.restore(0)
    ok(checkpoint())
    machine.lose(0)
    is_lost("UNKNOWN")


def a_checkpoint_is_refused(error: str) -> None:
    Device()
    ok(lock())
    fails(checkpoint(), error)
    ok(unlock())


def the_driver_has_no_checkpoints(library: str) -> None:
    Device()
    assert library in Path("/proc/self/maps").read_text()
    names = ("GetRestoreThreadId", "GetState", "Lock", "Checkpoint", "Restore", "Unlock")
    for name in names:
        assert not hasattr(DRIVER, f"cuCheckpointProcess{name}")
        status = ok(cuda.cuGetProcAddress(f"cuCheckpointProcess{name}".encode(), 13000, 0))[1]
        assert status == cuda.CUdriverProcAddressQueryResult.CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
    assert hasattr(DRIVER, "cuMemAlloc_v2")


if __name__ == "__main__":
    main(globals())
