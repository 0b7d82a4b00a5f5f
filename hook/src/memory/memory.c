#include "memory/memory.h"

#include <stddef.h>

#include "process/process.h"
#include "system/mix.h"
#include "system/system.h"

#define NEIGHBOURHOOD 64u

static void lock(struct orion_memory *memory)
{
    while (atomic_exchange_explicit(&memory->lock, 1, memory_order_acquire)) orion_pause();
}
static void unlock(struct orion_memory *memory) { atomic_store_explicit(&memory->lock, 0, memory_order_release); }

/* A process has one limit for all its GPUs: that of the first GPU that it has joined. `awaits`: waits until each GPU's
 * join has succeeded or failed. */
static struct orion_gpu *first_gpu(struct orion_process *process, bool awaits)
{
    for (uint32_t i = 0; i < atomic_load(&process->gpu_count) && i < ORION_GPUS; i++) {
        struct orion_gpu *gpu = &process->gpus[i];
        if (awaits) orion_gpu_await_join(gpu);
        if (atomic_load(&gpu->role) != ORION_ROLE_NONE) return gpu;
    }
    return NULL;
}

/* The limit is unknown until the join has succeeded or failed. So the caller waits for the join, as long as a launch
 * would. */
static struct orion_gpu *limiting_gpu(struct orion_process *process)
{
    return first_gpu(process, atomic_load_explicit(&process->joining, memory_order_acquire) != 0);
}

static uint64_t limit_of(struct orion_gpu *gpu) { return gpu == NULL ? 0 : orion_gpu_grant(gpu)->memory_limit_bytes; }

static struct orion_allocation *find(struct orion_memory *memory, uint64_t key, uint64_t wanted)
{
    uint64_t home = orion_mix(key);
    for (uint32_t i = 0; i < NEIGHBOURHOOD; i++) {
        struct orion_allocation *allocation = &memory->allocation[(home + i) & (ORION_ALLOCATIONS - 1)];
        if (allocation->key == wanted) return allocation;
    }
    return NULL;
}

/* Repeats the store if another thread changed `used` meanwhile, so that the last stored value is never an old one. */
void orion_memory_publish(struct orion_process *process)
{
    struct orion_gpu *gpu = first_gpu(process, false);
    if (gpu == NULL) return;
    uint64_t used;
    do {
        used = atomic_load(&orion_memory(process)->used);
        atomic_store(&gpu->record->memory_bytes, used);
    } while (used != atomic_load(&orion_memory(process)->used));
}

bool orion_memory_reserve(uint64_t bytes)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL) return true;
    struct orion_gpu *gpu = limiting_gpu(process);
    uint64_t limit = limit_of(gpu);
    uint64_t used = atomic_load(&orion_memory(process)->used);
    do {
        if (limit != 0 && (bytes > limit || used > limit - bytes)) {
            atomic_fetch_add_explicit(&gpu->record->memory_refusals, 1, memory_order_relaxed);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&orion_memory(process)->used, &used, used + bytes));
    return true;
}

void orion_memory_reserved(uint64_t bytes, uint64_t key, CUresult result)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL) return;
    struct orion_memory *memory = orion_memory(process);
    struct orion_allocation *allocation = NULL;
    if (result == CUDA_SUCCESS && key != 0) {
        lock(memory);
        allocation = find(memory, key, 0);
        if (allocation != NULL) *allocation = (struct orion_allocation){key, bytes};
        unlock(memory);
    }
    if (allocation == NULL) { /* not counted: it failed, or the table is full, so its free would find no size */
        uint64_t used = atomic_load(&memory->used);
        while (!atomic_compare_exchange_weak(&memory->used, &used, used > bytes ? used - bytes : 0)) {}
    }
    orion_memory_publish(process);
}

void orion_memory_released(uint64_t key, CUresult result)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL || result != CUDA_SUCCESS || key == 0) return;
    struct orion_memory *memory = orion_memory(process);
    lock(memory);
    struct orion_allocation *allocation = find(memory, key, key);
    uint64_t bytes = allocation == NULL ? 0 : allocation->bytes;
    if (allocation != NULL) *allocation = (struct orion_allocation){0, 0};
    unlock(memory);
    uint64_t used = atomic_load(&memory->used);
    while (!atomic_compare_exchange_weak(&memory->used, &used, used > bytes ? used - bytes : 0)) {}
    orion_memory_publish(process);
}

void orion_memory_info(size_t *free_bytes, size_t *total_bytes)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL) return;
    uint64_t limit = limit_of(limiting_gpu(process));
    if (limit == 0) return;
    uint64_t used = atomic_load(&orion_memory(process)->used), left = used < limit ? limit - used : 0;
    if (total_bytes != NULL && *total_bytes > limit) *total_bytes = limit;
    if (free_bytes != NULL && *free_bytes > left) *free_bytes = left;
}
