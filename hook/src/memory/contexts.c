#include "memory/contexts.h"

#include "generated/driver.h"
#include "memory/account.h"
#include "process/absence.h"

CUcontext orion_memory_context(struct orion_process *process, CUdevice device)
{
    CUcontext current = NULL;
    CUgreenCtx green = NULL;
    if (orion_driver.cuCtxGetCurrent == NULL || orion_driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS) return NULL;
    CUcontext primary = orion_process_primary(process, device);
    if (current == primary || atomic_load(&orion_memory(process)->has_green) == 0) return current;
    if (orion_driver.cuStreamGetGreenCtx == NULL) return current;
    if (atomic_load(&process->captures) != 0) return NULL; /* which such a question might end */
    enum orion_presence presence = orion_present_try(process);
    if (presence == ORION_ABSENT) return NULL;
    CUresult result = orion_driver.cuStreamGetGreenCtx(CU_STREAM_LEGACY, &green);
    orion_present_end(process, presence);
    if (result != CUDA_SUCCESS) return NULL;
    return green == NULL ? current : primary;
}

void orion_memory_has_green(struct orion_process *process) { atomic_store(&orion_memory(process)->has_green, 1); }

void orion_memory_primary_is(struct orion_process *process, CUdevice device, CUcontext context)
{
    if (orion_account_counts(device)) atomic_store(&process->primary[device], context);
}

uint32_t orion_memory_ending(struct orion_process *process)
{
    struct orion_memory *memory = orion_memory(process);
    orion_account_lock(memory);
    uint32_t ending = ++memory->ends;
    orion_account_unlock(memory);
    return ending;
}

void orion_memory_primary_ended(struct orion_process *process, CUdevice device, uint32_t ending)
{
    if (!orion_account_counts(device)) return;
    orion_memory_ended(process, atomic_exchange(&process->primary[device], NULL), ending);
}
