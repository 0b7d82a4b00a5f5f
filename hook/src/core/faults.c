#include "core/faults.h"

#include "hp/busy.h"
#include "process/gpu.h"
#include "process/process.h"
#include "streams/stream_records.h"

bool orion_fault_is_final(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_MPS_CONNECTION_FAILED:
    case CUDA_ERROR_MPS_RPC_FAILURE:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED: return true;
    default: return false;
    }
}

/* Marks all work of a lost context as complete, because no later call can prove it. */
static void drain(struct orion_process *process, const struct orion_gpu *gpu, CUcontext context)
{
    uint32_t used = atomic_load(&orion_stream_records(process)->high_water);
    for (uint32_t i = orion_stream_records_begin(process); i < used; i++) {
        struct orion_stream_record *stream_record = &orion_stream_records(process)->entry[i];
        if (atomic_load(&stream_record->gpu) == gpu && stream_record->context == context)
            orion_stream_record_prove(stream_record, atomic_load(&stream_record->returned));
    }
}

void orion_fault_seen(struct orion_process *process, struct orion_stream_record *stream_record, CUresult result)
{
    if (!orion_fault_is_final(result)) return;
    struct orion_gpu *gpu = atomic_load(&stream_record->gpu);
    uint64_t none = 0; /* record only the first fault, because it caused the later ones */
    atomic_compare_exchange_strong(&gpu->record->fault, &none, (uint64_t)result);
    drain(process, gpu, stream_record->context);
    if (atomic_load_explicit(&gpu->role, memory_order_relaxed) == ORION_ROLE_HP) orion_busy_try_close(process, gpu);
}
