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

/* Writes what the process holds on the GPU, and then to which credit it keeps. Sequentially consistent: a later look at the
 * credit comes after it. The caller has the lock, so the page never lags behind. */
static void publish_to(struct orion_gpu *gpu, uint64_t used)
{
    atomic_store(&gpu->record->memory_bytes, used);
    atomic_store(&gpu->record->credit_epoch, atomic_load(&gpu->grant->credit_epoch));
}

void orion_memory_publish(struct orion_process *process, struct orion_gpu *gpu)
{
    if (!counts(gpu->device)) return;
    struct orion_memory *memory = orion_memory(process);
    lock(memory);
    publish_to(gpu, memory->used[gpu->device]);
    unlock(memory);
}

/* The caller has the lock. */
static void change(struct orion_process *process, CUdevice device, uint64_t used)
{
    orion_memory(process)->used[device] = used;
    struct orion_gpu *gpu = client_on(process, device, false);
    if (gpu != NULL) publish_to(gpu, used);
}

/* The caller has the lock. */
static void give_back(struct orion_process *process, CUdevice device, uint64_t bytes)
{
    uint64_t used = orion_memory(process)->used[device];
    change(process, device, used > bytes ? used - bytes : 0);
}

/* Frees the entry if nothing holds its memory; returns what is to be given back. Memory that is only mapped keeps its entry
 * without a handle, because the driver may give the same handle to other memory. The caller has the lock. */
static struct orion_release drop(struct orion_allocation *allocation)
{
    struct orion_release release = {.device = allocation->device};
    if (allocation->handles == 0) allocation->key = ONLY_MAPPED;
    if (allocation->handles != 0 || allocation->mappings != 0) return release;
    release.bytes = allocation->bytes;
    *allocation = (struct orion_allocation){0};
    return release;
}

/* An agent that gives no credit has the epoch 0; then each process has the whole limit. */
static uint64_t credit_of(const struct orion_gpu *gpu)
{
    if (atomic_load(&gpu->grant->credit_epoch) == 0) return UINT64_MAX;
    uint32_t index = gpu->record->client_index;
    return index < ORION_GPU_CLIENTS_MAX ? (uint64_t)atomic_load(&gpu->grant->credit_mib[index]) << 20 : 0;
}
static bool is_within_credit(const struct orion_gpu *gpu, uint64_t used) { return used <= credit_of(gpu); }

void orion_memory_refused(struct orion_gpu *gpu)
{
    atomic_fetch_add_explicit(&gpu->record->memory_refusals, 1, memory_order_relaxed);
}

/* A sum of such sizes does not overflow. The driver refuses a larger one. */
static uint64_t countable(uint64_t bytes) { return bytes < UINT64_C(1) << 50 ? bytes : UINT64_C(1) << 50; }

enum orion_reservation orion_memory_reserve(CUdevice device, uint64_t bytes, struct orion_wish *wish)
{
    bytes = countable(bytes);
    struct orion_process *process = orion_the_process;
    if (process == NULL || !counts(device)) return ORION_RESERVED;
    struct orion_gpu *gpu = limiting_gpu(process, device);
    struct orion_memory *memory = orion_memory(process);
    enum orion_reservation result = ORION_RESERVED;
    lock(memory);
    uint64_t limit = limit_of(gpu), before = memory->used[device];
    bool needs_credit = limit != 0 && bytes != 0;
    if (limit != 0 && (bytes > limit || before > limit - bytes)) {
        result = ORION_BEYOND_LIMIT;
    } else if (needs_credit && !is_within_credit(gpu, before + bytes)) {
        result = ORION_BEYOND_CREDIT; /* without a word in the page: the agent would count it as held */
    } else {
        change(process, device, before + bytes);
        if (needs_credit && !is_within_credit(gpu, before + bytes)) { /* it was lowered meanwhile */
            change(process, device, before);
            result = ORION_BEYOND_CREDIT;
        }
    }
    unlock(memory);
    *wish = (struct orion_wish){gpu, before + bytes};
    return result;
}

void orion_memory_reserved(CUdevice device, uint64_t bytes, uint64_t key, CUresult result)
{
    bytes = countable(bytes);
    struct orion_process *process = orion_the_process;
    if (process == NULL || !counts(device)) return;
    struct orion_memory *memory = orion_memory(process);
    struct orion_allocation *entry = NULL;
    lock(memory);
    if (result == CUDA_SUCCESS && key != 0) {
        entry = find_free(memory, key);
        if (entry != NULL) *entry = (struct orion_allocation){.key = key, .bytes = bytes, .device = (unsigned)device, .handles = 1};
    }
    if (entry == NULL) /* the allocation failed, or the tables are full and the free would find no size */
        give_back(process, device, bytes);
    unlock(memory);
}

struct orion_release orion_memory_releasing(uint64_t key)
{
    struct orion_process *process = orion_the_process;
    struct orion_release release = {0};
    if (process == NULL || key == 0) return release;
    struct orion_memory *memory = orion_memory(process);
    lock(memory);
    struct orion_allocation *allocation = find(memory, key);
    if (allocation != NULL && allocation->handles != 0) {
        allocation->handles--;
        release = drop(allocation);
        release.key = key;
    }
    unlock(memory);
    return release;
}

/* A free that fails leaves the memory to the program. Its context is broken then, or the address was wrong and has no
 * entry; so a handle that was released in part is not counted again. */
void orion_memory_released(const struct orion_release *release, CUresult result)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL || release->bytes == 0) return;
    struct orion_memory *memory = orion_memory(process);
    lock(memory);
    struct orion_allocation *entry = result == CUDA_SUCCESS ? NULL : find_free(memory, release->key);
    if (entry != NULL) {
        *entry = (struct orion_allocation){.key = release->key,
                                           .bytes = release->bytes,
                                           .device = (unsigned)release->device,
                                           .handles = 1};
    } else {
        give_back(process, release->device, release->bytes);
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
        struct orion_release release = drop(mapping->mapped);
        if (release.bytes != 0) give_back(process, release.device, release.bytes);
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

/* Other processes of the slot hold a part of its limit: what they used lately. What is left of this client's own credit is
 * surely free. */
void orion_memory_info(CUdevice device, size_t *free_bytes, size_t *total_bytes)
{
    struct orion_process *process = orion_process_if_managed();
    if (process == NULL || !counts(device)) return;
    struct orion_gpu *gpu = limiting_gpu(process, device);
    uint64_t limit = limit_of(gpu);
    if (limit == 0) return;
    struct orion_memory *memory = orion_memory(process);
    lock(memory);
    uint64_t used = memory->used[device];
    unlock(memory);
    uint64_t of_slot = (uint64_t)atomic_load(&gpu->grant->used_mib) << 20;
    if (of_slot < used) of_slot = used;
    uint64_t left = of_slot < limit ? limit - of_slot : 0;
    uint64_t own = credit_of(gpu);
    if (own > limit) own = limit;
    if (own > used && left < own - used) left = own - used;
    if (total_bytes != NULL && *total_bytes > limit) *total_bytes = limit;
    if (free_bytes != NULL && *free_bytes > left) *free_bytes = left;
}
