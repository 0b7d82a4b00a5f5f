#include "core/faults.h"

#include "hp/busy.h"
#include "process/gpu.h"
#include "process/process.h"
#include "streams/outcome.h"
#include "streams/stream_records.h"

/* Marks all work of a lost context as complete, because no later call can prove it. */
static void drain(struct orion_process *process, const struct orion_gpu *gpu, CUcontext context)
{
    ORION_EACH_STREAM_RECORD(stream_record, process, gpu)
        if (stream_record->context == context) orion_stream_record_prove(stream_record, atomic_load(&stream_record->returned));
}

void orion_fault_seen(struct orion_process *process, struct orion_stream_record *stream_record, CUresult result)
{
    /* A driver that has shut down is no fault: the process ends. */
    if (result == CUDA_ERROR_DEINITIALIZED || orion_outcome_of(result) != ORION_OUTCOME_LOST) return;
    struct orion_gpu *gpu = atomic_load(&stream_record->gpu);
    uint64_t none = 0; /* record only the first fault, because it caused the later ones */
    atomic_compare_exchange_strong(&gpu->record->fault, &none, (uint64_t)result);
    drain(process, gpu, stream_record->context);
    if (atomic_load_explicit(&gpu->role, memory_order_relaxed) == ORION_ROLE_HP) orion_busy_try_close(process, gpu);
}
