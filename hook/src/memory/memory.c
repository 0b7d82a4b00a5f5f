#include "memory/memory.h"

#include <stddef.h>

#include "generated/driver.h"
#include "process/process.h"
#include "streams/stream_records.h"
#include "system/mix.h"
#include "system/system.h"

#define NEIGHBOURHOOD 64u
#define ONLY_MAPPED UINT64_MAX /* the key of memory without a handle */
#define GRANULARITY 0x200000u  /* 2 MiB: no mapping is smaller */

static void lock(struct orion_memory *memory)
{
    while (atomic_exchange_explicit(&memory->lock, 1, memory_order_acquire)) orion_pause();
}
static void unlock(struct orion_memory *memory) { atomic_store_explicit(&memory->lock, 0, memory_order_release); }

static bool counts(CUdevice device) { return device >= 0 && device < (CUdevice)ORION_GPUS; }

CUdevice orion_memory_device(void)
{
    CUdevice device;
    if (orion_the_process == NULL || orion_driver.cuCtxGetDevice == NULL) return -1;
    return orion_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : -1;
}

CUdevice orion_memory_device_of(struct orion_stream_name stream)
{
    struct orion_process *process = orion_process_if_managed();
    struct orion_stream_record *record = process == NULL ? NULL : orion_stream_record_of(process, stream);
    struct orion_gpu *gpu = record == NULL ? NULL : atomic_load(&record->gpu);
    return gpu == NULL ? orion_memory_device() : gpu->device;
}

/* The first client that this process has on the device; with threads as clients it may have several. `awaits`: waits
 * until its join has succeeded or failed. */
static struct orion_gpu *client_on(struct orion_process *process, CUdevice device, bool awaits)
{
    for (uint32_t i = 0; i < atomic_load(&process->gpu_count) && i < ORION_GPUS; i++) {
        struct orion_gpu *gpu = &process->gpus[i];
        if (gpu->device != device) continue;
        if (awaits) orion_gpu_await_join(gpu);
        if (atomic_load(&gpu->role) != ORION_ROLE_NONE) return gpu;
    }
    return NULL;
}

/* The limit is unknown until the join has succeeded or failed. So the caller waits for the join, as long as a launch
 * would. */
static struct orion_gpu *limiting_gpu(struct orion_process *process, CUdevice device)
{
    return client_on(process, device, atomic_load_explicit(&process->joining, memory_order_acquire) != 0);
}

static uint64_t limit_of(struct orion_gpu *gpu) { return gpu == NULL ? 0 : orion_gpu_grant(gpu)->memory_limit_bytes; }

static struct orion_allocation *find_in(struct orion_allocation *table, uint64_t key, uint64_t wanted)
{
    uint64_t home = orion_mix(key);
    for (uint32_t i = 0; i < NEIGHBOURHOOD; i++) {
        struct orion_allocation *allocation = &table[(home + i) & (ORION_ALLOCATIONS - 1)];
        if (allocation->key == wanted) return allocation;
    }
    return NULL;
}

static struct orion_allocation *find(struct orion_memory *memory, uint64_t key)
{
    struct orion_allocation *found = NULL;
    for (uint32_t i = 0; i < memory->tables && found == NULL; i++) found = find_in(memory->allocation[i], key, key);
    return found;
}

/* Returns a free entry for the key. NULL: in every table, all entries where the key could be are in use. */
static struct orion_allocation *find_free(struct orion_memory *memory, uint64_t key)
{
    for (uint32_t i = 0; i < ORION_ALLOCATION_TABLES; i++) {
        struct orion_allocation *entry = find_in(memory->allocation[i], key, 0);
        if (entry == NULL) continue;
        if (memory->tables <= i) memory->tables = i + 1;
        return entry;
    }
    return NULL;
}

/* Repeats the store if another thread changed `used` meanwhile, so that the last stored value is never an old one. */
void orion_memory_publish(struct orion_process *process, struct orion_gpu *gpu)
{
    if (!counts(gpu->device)) return;
    _Atomic uint64_t *total = &orion_memory(process)->used[gpu->device];
    uint64_t used;
    do {
        used = atomic_load(total);
        atomic_store(&gpu->record->memory_bytes, used);
    } while (used != atomic_load(total));
}

static void publish(struct orion_process *process, CUdevice device)
{
    struct orion_gpu *gpu = client_on(process, device, false);
    if (gpu != NULL) orion_memory_publish(process, gpu);
}

static void give_back(struct orion_process *process, CUdevice device, uint64_t bytes)
{
    _Atomic uint64_t *total = &orion_memory(process)->used[device];
    uint64_t used = atomic_load(total);
    while (!atomic_compare_exchange_weak(total, &used, used > bytes ? used - bytes : 0)) {}
    publish(process, device);
}

/* Frees the entry if nothing holds its memory. Memory that is only mapped keeps its entry without a handle, because the
 * driver may give the same handle to other memory. The caller has the lock. */
static void drop(struct orion_process *process, struct orion_allocation *allocation)
{
    if (allocation->handles == 0) allocation->key = ONLY_MAPPED;
    if (allocation->handles != 0 || allocation->mappings != 0) return;
    give_back(process, allocation->device, allocation->bytes);
    *allocation = (struct orion_allocation){0};
}

bool orion_memory_reserve(CUdevice device, uint64_t bytes)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL || !counts(device)) return true;
    struct orion_gpu *gpu = limiting_gpu(process, device);
    uint64_t limit = limit_of(gpu);
    _Atomic uint64_t *total = &orion_memory(process)->used[device];
    uint64_t used = atomic_load(total);
    do {
        if (limit != 0 && (bytes > limit || used > limit - bytes)) {
            atomic_fetch_add_explicit(&gpu->record->memory_refusals, 1, memory_order_relaxed);
            return false;
        }
    } while (!atomic_compare_exchange_weak(total, &used, used + bytes));
    return true;
}

void orion_memory_reserved(CUdevice device, uint64_t bytes, uint64_t key, CUresult result)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL || !counts(device)) return;
    struct orion_memory *memory = orion_memory(process);
    struct orion_allocation *entry = NULL;
    if (result == CUDA_SUCCESS && key != 0) {
        lock(memory);
        entry = find_free(memory, key);
        if (entry != NULL) *entry = (struct orion_allocation){.key = key, .bytes = bytes, .device = (unsigned)device, .handles = 1};
        unlock(memory);
    }
    if (entry == NULL) /* the allocation failed, or the tables are full and the free would find no size */
        give_back(process, device, bytes);
    else publish(process, device);
}

void orion_memory_released(uint64_t key, CUresult result)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL || result != CUDA_SUCCESS || key == 0) return;
    struct orion_memory *memory = orion_memory(process);
    lock(memory);
    struct orion_allocation *allocation = find(memory, key);
    if (allocation != NULL && allocation->handles != 0) {
        allocation->handles--;
        drop(process, allocation);
    }
    unlock(memory);
}

void orion_memory_mapped(CUdeviceptr at, size_t bytes, uint64_t handle, CUresult result)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL || result != CUDA_SUCCESS) return;
    struct orion_memory *memory = orion_memory(process);
    lock(memory);
    struct orion_allocation *mapped = find(memory, handle), *mapping = mapped == NULL ? NULL : find_free(memory, at);
    if (mapping != NULL) {
        *mapping = (struct orion_allocation){.key = at, .bytes = bytes, .mapped = mapped};
        mapped->mappings++;
    }
    unlock(memory);
}

void orion_memory_unmapped(CUdeviceptr at, size_t bytes, CUresult result)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL || result != CUDA_SUCCESS) return;
    struct orion_memory *memory = orion_memory(process);
    lock(memory);
    for (CUdeviceptr end = at + bytes; at < end;) { /* one call may remove several mappings */
        struct orion_allocation *mapping = find(memory, at);
        if (mapping == NULL || mapping->mapped == NULL) {
            at += GRANULARITY;
            continue;
        }
        at += mapping->bytes;
        mapping->mapped->mappings--;
        drop(process, mapping->mapped);
        *mapping = (struct orion_allocation){0};
    }
    unlock(memory);
}

/* The address may be inside a mapping, so this function looks at all entries. Programs rarely call it. */
void orion_memory_retained(uint64_t handle, uintptr_t address, CUresult result)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL || result != CUDA_SUCCESS) return;
    struct orion_memory *memory = orion_memory(process);
    lock(memory);
    for (uint32_t i = 0; i < memory->tables * ORION_ALLOCATIONS; i++) {
        struct orion_allocation *mapping = &memory->allocation[i / ORION_ALLOCATIONS][i % ORION_ALLOCATIONS];
        if (mapping->mapped == NULL || address - mapping->key >= mapping->bytes) continue;
        struct orion_allocation *mapped = mapping->mapped;
        uint64_t key = mapped->key;
        mapped->key = handle;
        if (find(memory, handle) == mapped) mapped->handles++;
        else mapped->key = key; /* the driver chose another handle, whose release would not find this entry */
        break;
    }
    unlock(memory);
}

void orion_memory_info(CUdevice device, size_t *free_bytes, size_t *total_bytes)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL || !counts(device)) return;
    uint64_t limit = limit_of(limiting_gpu(process, device));
    if (limit == 0) return;
    uint64_t used = atomic_load(&orion_memory(process)->used[device]), left = used < limit ? limit - used : 0;
    if (total_bytes != NULL && *total_bytes > limit) *total_bytes = limit;
    if (free_bytes != NULL && *free_bytes > left) *free_bytes = left;
}
