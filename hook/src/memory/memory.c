#include "memory/memory.h"

#include <stddef.h>

#include "generated/driver.h"
#include "memory/account.h"
#include "memory/contexts.h"
#include "process/process.h"
#include "streams/stream_records.h"
#include "system/mix.h"

#define NEIGHBOURHOOD 64u
#define ONLY_MAPPED UINT64_MAX /* the key of memory without a handle */
#define GRANULARITY 0x200000u  /* 2 MiB: no mapping is smaller */

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

static void clear(struct orion_memory *memory, struct orion_allocation *allocation)
{
    if (allocation->kind != ORION_MEMORY_RESIDENT) atomic_fetch_sub_explicit(&memory->managed, 1, memory_order_relaxed);
    *allocation = (struct orion_allocation){0};
}

/* Returns a free entry for memory that the driver has just given, or has mapped. An older entry of the same key is of memory
 * that ended with its context, of which the hook does not know. The caller has the lock. */
static struct orion_allocation *enter(struct orion_process *process, uint64_t key)
{
    struct orion_memory *memory = orion_memory(process);
    struct orion_allocation *before = find(memory, key);
    if (before != NULL && before->mapped == NULL && before->mappings == 0) {
        if (before->pool == 0) orion_account_give_back(process, before->device, before->bytes, before->kind);
        clear(memory, before);
    }
    return find_free(memory, key);
}

/* Fills a free entry. */
static void fill(const struct orion_memory *memory, struct orion_allocation *entry, const struct orion_release *of)
{
    *entry = (struct orion_allocation){.key = of->key,
                                       .bytes = of->bytes,
                                       .device = (unsigned)of->device & 15,
                                       .kind = of->kind & 3,
                                       .context = of->context,
                                       .handles = 1,
                                       .ends = memory->ends};
}

/* Frees the entry if nothing holds its memory; returns what is to be given back. Memory that is only mapped keeps its entry
 * without a handle, because the driver may give the same handle to other memory. The caller has the lock. */
static struct orion_release drop(struct orion_memory *memory, struct orion_allocation *allocation)
{
    struct orion_release release = {.context = allocation->context, .device = allocation->device, .kind = allocation->kind};
    if (allocation->handles == 0) allocation->key = ONLY_MAPPED;
    if (allocation->handles != 0 || allocation->mappings != 0) return release;
    release.bytes = allocation->pool == 0 ? allocation->bytes : 0;
    clear(memory, allocation);
    return release;
}

/* Managed memory without an entry keeps the process on the GPU for good. */
static void count_managed(struct orion_memory *memory, enum orion_memory_kind kind)
{
    if (kind != ORION_MEMORY_RESIDENT) atomic_fetch_add_explicit(&memory->managed, 1, memory_order_relaxed);
}

static void note(CUdevice device, uint64_t bytes, enum orion_memory_kind kind, uint64_t key, CUcontext context, CUresult result)
{
    bytes = orion_account_countable(bytes);
    struct orion_process *process = orion_the_process;
    if (process == NULL) return;
    struct orion_memory *memory = orion_memory(process);
    if (result == CUDA_SUCCESS) count_managed(memory, kind);
    if (!orion_account_counts(device)) return;
    struct orion_allocation *entry = NULL;
    orion_account_lock(memory);
    if (result == CUDA_SUCCESS && key != 0) {
        entry = enter(process, key);
        if (entry != NULL) fill(memory, entry, &(struct orion_release){key, bytes, context, device, kind});
    }
    if (entry == NULL) /* the allocation failed, or the tables are full and the free would find no size */
        orion_account_give_back(process, device, bytes, kind);
    orion_account_takes(process, device, bytes, false);
    orion_account_unlock(memory);
}

void orion_memory_reserved(CUdevice device, uint64_t bytes, enum orion_memory_kind kind, uint64_t key, CUresult result)
{
    note(device, bytes, kind, key, NULL, result);
}

void orion_memory_allocated(CUdevice device, uint64_t bytes, enum orion_memory_kind kind, uint64_t key, CUresult result)
{
    struct orion_process *process = orion_the_process;
    bool has_entry = process != NULL && orion_account_counts(device) && result == CUDA_SUCCESS;
    note(device, bytes, kind, key, has_entry ? orion_memory_context(process, device) : NULL, result);
}

void orion_memory_ended(struct orion_process *process, CUcontext context, uint32_t ending)
{
    struct orion_memory *memory = orion_memory(process);
    if (context == NULL) return;
    orion_account_lock(memory);
    for (uint32_t i = 0; i < memory->tables * ORION_ALLOCATIONS; i++) {
        struct orion_allocation *entry = &memory->allocation[i / ORION_ALLOCATIONS][i % ORION_ALLOCATIONS];
        if (entry->context != context || (int32_t)(entry->ends - ending) >= 0 || entry->mappings != 0) continue;
        orion_account_give_back(process, entry->device, entry->bytes, entry->kind);
        clear(memory, entry);
    }
    orion_account_unlock(memory);
}

void orion_memory_pooled(uint64_t key, uint64_t bytes, uint32_t pool)
{
    struct orion_memory *memory = orion_memory(orion_the_process);
    orion_account_lock(memory);
    struct orion_allocation *entry = enter(orion_the_process, key);
    if (entry != NULL)
        *entry = (struct orion_allocation){.key = key, .bytes = orion_account_countable(bytes), .pool = pool + 1, .handles = 1};
    orion_account_unlock(memory);
}

uint64_t orion_memory_leave_pool(uint32_t pool, CUdevice device)
{
    uint64_t bytes = 0;
    struct orion_memory *memory = orion_memory(orion_the_process);
    orion_account_lock(memory);
    for (uint32_t i = 0; i < memory->tables * ORION_ALLOCATIONS; i++) {
        struct orion_allocation *entry = &memory->allocation[i / ORION_ALLOCATIONS][i % ORION_ALLOCATIONS];
        if (entry->pool != pool + 1) continue;
        bytes += entry->bytes;
        if (device < 0) *entry = (struct orion_allocation){0};
        else entry->pool = 0, entry->device = (unsigned)device;
    }
    orion_account_unlock(memory);
    return bytes;
}

void orion_memory_shared(void)
{
    struct orion_process *process = orion_process_started();
    if (process != NULL) atomic_store_explicit(&orion_memory(process)->shared, 1, memory_order_relaxed);
}

void orion_memory_managed(void)
{
    struct orion_process *process = orion_process_started();
    if (process != NULL) atomic_store_explicit(&orion_memory(process)->has_managed, 1, memory_order_relaxed);
}

void orion_memory_placed(const CUmemLocation *location, CUmemAllocationType type)
{
    struct orion_process *process = orion_process_started();
    if (process == NULL) return;
    if (type == CU_MEM_ALLOCATION_TYPE_MANAGED) orion_memory_managed();
    else if (location != NULL && orion_device_at(location) < 0)
        atomic_store_explicit(&orion_memory(process)->on_host, 1, memory_order_relaxed);
}

struct orion_release orion_memory_releasing(uint64_t key)
{
    struct orion_process *process = orion_the_process;
    struct orion_release release = {0};
    if (process == NULL || key == 0) return release;
    struct orion_memory *memory = orion_memory(process);
    orion_account_lock(memory);
    struct orion_allocation *allocation = find(memory, key);
    if (allocation != NULL && allocation->handles != 0) {
        allocation->handles--;
        release = drop(memory, allocation);
        release.key = key;
    }
    orion_account_unlock(memory);
    return release;
}

/* A free that fails leaves the memory to the program. Its context is broken then, or the address was wrong and has no
 * entry; so a handle that was released in part is not counted again. */
void orion_memory_released(const struct orion_release *release, CUresult result)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL || release->bytes == 0) return;
    struct orion_memory *memory = orion_memory(process);
    orion_account_lock(memory);
    struct orion_allocation *entry = result == CUDA_SUCCESS ? NULL : find_free(memory, release->key);
    if (entry != NULL) {
        fill(memory, entry, release);
        count_managed(memory, release->kind);
    } else {
        orion_account_give_back(process, release->device, release->bytes, release->kind);
    }
    orion_account_unlock(memory);
}

void orion_memory_mapped(CUdeviceptr at, size_t bytes, uint64_t handle, CUresult result)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL || result != CUDA_SUCCESS) return;
    struct orion_memory *memory = orion_memory(process);
    orion_account_lock(memory);
    struct orion_allocation *mapped = find(memory, handle), *mapping = mapped == NULL ? NULL : enter(process, at);
    if (mapping != NULL) {
        *mapping = (struct orion_allocation){.key = at, .bytes = bytes, .mapped = mapped};
        mapped->mappings++;
    }
    orion_account_unlock(memory);
}

void orion_memory_unmapped(CUdeviceptr at, size_t bytes, CUresult result)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL || result != CUDA_SUCCESS) return;
    struct orion_memory *memory = orion_memory(process);
    orion_account_lock(memory);
    for (CUdeviceptr end = at + bytes; at < end;) { /* one call may remove several mappings */
        struct orion_allocation *mapping = find(memory, at);
        if (mapping == NULL || mapping->mapped == NULL) {
            at += GRANULARITY;
            continue;
        }
        at += mapping->bytes;
        mapping->mapped->mappings--;
        struct orion_release release = drop(memory, mapping->mapped);
        if (release.bytes != 0) orion_account_give_back(process, release.device, release.bytes, release.kind);
        *mapping = (struct orion_allocation){0};
    }
    orion_account_unlock(memory);
}

/* The address may be inside a mapping, so this function looks at all entries. Programs rarely call it. */
void orion_memory_retained(uint64_t handle, uintptr_t address)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL) return;
    struct orion_memory *memory = orion_memory(process);
    orion_account_lock(memory);
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
    orion_account_unlock(memory);
}
