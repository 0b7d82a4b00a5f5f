/* Ranges of memory (see allocation.h), in a sorted array, because look-ups are far more frequent than changes.
 *
 * Device memory is host memory. The driver only reserves address space, and Linux adds a page of memory when a program
 * touches it. So the data is real, and 80 GiB that no program touches use no memory. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "allocation.h"
#include "paging.h"

#define GRANULE (UINT64_C(2) << 20) /* allocations of at least half a granule are charged whole granules */
#define SMALL 512u
#define MANAGED_MOST (UINT64_C(1) << 46) /* of one allocation of managed memory: address space */

static struct sim_allocation *table;
static size_t count, capacity;
static unsigned long long ids;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

void *sim_pages(size_t size)
{
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

void sim_pages_free(void *pages, size_t size) { munmap(pages, size); }

/* The number of ranges that start at or before `address`. */
static size_t up_to(uintptr_t address)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle].start <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

bool sim_allocation_add(const struct sim_allocation *allocation)
{
    bool added = true;
    pthread_rwlock_wrlock(&lock);
    if (count == capacity) {
        size_t more = capacity ? capacity * 2 : 64;
        void *grown = realloc(table, more * sizeof *table);
        added = grown != NULL;
        if (added) {
            table = grown;
            capacity = more;
        }
    }
    if (added) {
        size_t at = up_to(allocation->start);
        memmove(table + at + 1, table + at, (count - at) * sizeof *table);
        table[at] = *allocation;
        table[at].id = ++ids;
        count++;
    }
    pthread_rwlock_unlock(&lock);
    return added;
}

bool sim_allocation_find(uintptr_t address, struct sim_allocation *found)
{
    pthread_rwlock_rdlock(&lock);
    size_t at = up_to(address);
    bool is = at && address - table[at - 1].start < table[at - 1].size;
    if (is) *found = table[at - 1];
    pthread_rwlock_unlock(&lock);
    return is;
}

bool sim_allocation_remove(uintptr_t start, struct sim_allocation *removed)
{
    pthread_rwlock_wrlock(&lock);
    size_t at = up_to(start);
    bool is = at && table[at - 1].start == start;
    if (is) {
        *removed = table[at - 1];
        memmove(table + at - 1, table + at, (count - at) * sizeof *table);
        count--;
    }
    pthread_rwlock_unlock(&lock);
    return is;
}

bool sim_allocation_share(uintptr_t start, int file)
{
    pthread_rwlock_wrlock(&lock);
    size_t at = up_to(start);
    bool is = at && table[at - 1].start == start;
    if (is) table[at - 1].file = file;
    pthread_rwlock_unlock(&lock);
    return is;
}

bool sim_allocation_unsaved(void)
{
    bool is = false;
    pthread_rwlock_rdlock(&lock);
    for (size_t at = 0; at < count && !is; at++) is = table[at].memory == SIM_MANAGED || table[at].file;
    pthread_rwlock_unlock(&lock);
    return is;
}

bool sim_on_device(const void *address)
{
    struct sim_allocation found;
    return sim_allocation_find((uintptr_t)address, &found) && found.memory != SIM_PINNED && found.memory != SIM_REGISTERED;
}

bool sim_memory_take(struct CUctx_st *context, uint64_t bytes)
{
    bool fits;
    do {
        sim_enter();
        struct sim_context *of = &sim_state()->contexts[context->slot];
        struct sim_gpu *gpu = &sim_state()->gpus[sim_device_gpu(context->device)];
        fits = sim_paging_make_room(of->gpu, bytes);
        if (fits) {
            SIM_PUT(gpu->memory, gpu->memory + bytes);
            SIM_PUT(of->memory, of->memory + bytes);
        }
    } while (!sim_leave());
    return fits;
}

void sim_memory_return(struct CUctx_st *context, uint64_t bytes)
{
    do {
        sim_enter();
        struct sim_context *of = &sim_state()->contexts[context->slot];
        struct sim_gpu *gpu = &sim_state()->gpus[sim_device_gpu(context->device)];
        uint64_t have = bytes < of->memory ? bytes : of->memory; /* a destroyed context has already returned all its memory */
        SIM_PUT(gpu->memory, gpu->memory - have);
        SIM_PUT(of->memory, of->memory - have);
    } while (!sim_leave());
}

size_t sim_charge(size_t size)
{
    size_t unit = size >= GRANULE / 2 ? GRANULE : 4096;
    return (size + unit - 1) / unit * unit;
}

bool sim_allocation_make(struct sim_allocation *allocation, size_t bytes)
{
    void *pages = sim_pages(bytes);
    allocation->start = (uintptr_t)pages;
    if (!pages) return false;
    if (sim_allocation_add(allocation)) return true;
    sim_pages_free(pages, bytes);
    return false;
}

CUresult sim_device_memory(struct CUctx_st *context, size_t size, enum sim_memory memory, uintptr_t *start)
{
    SIM_REFUSE(size > sim_machine->parameters.memory, CUDA_ERROR_OUT_OF_MEMORY);
    size_t charged = sim_charge(size);
    SIM_REFUSE(!sim_memory_take(context, charged), CUDA_ERROR_OUT_OF_MEMORY);
    struct sim_allocation allocation = {.size = size, .charged = charged, .memory = memory, .context = context};
    if (!sim_allocation_make(&allocation, charged)) {
        sim_memory_return(context, charged);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *start = allocation.start;
    return CUDA_SUCCESS;
}

CUresult sim_managed_memory(struct CUctx_st *context, size_t size, uintptr_t *start)
{
    SIM_REFUSE(size > MANAGED_MOST, CUDA_ERROR_OUT_OF_MEMORY);
    size_t charged = sim_charge(size);
    struct sim_allocation allocation = {.size = size, .charged = charged, .memory = SIM_MANAGED, .context = context};
    SIM_REFUSE(!sim_managed_take(context, charged, &allocation.range), CUDA_ERROR_OUT_OF_MEMORY);
    if (!sim_allocation_make(&allocation, charged)) {
        sim_managed_return(context, allocation.range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *start = allocation.start;
    return CUDA_SUCCESS;
}

CUresult sim_device_memory_at(struct CUctx_st *context, uintptr_t start, size_t size)
{
    struct sim_allocation allocation = {.start = start,
                                        .size = size,
                                        .charged = sim_charge(size),
                                        .memory = SIM_OF_GRAPH,
                                        .context = context};
    SIM_REFUSE(!sim_graphs_take(context, allocation.charged), CUDA_ERROR_OUT_OF_MEMORY);
    if (sim_allocation_add(&allocation)) return CUDA_SUCCESS;
    sim_graphs_give(context, allocation.charged);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_device_memory_free(const struct sim_allocation *allocation)
{
    if (allocation->memory == SIM_OF_GRAPH) madvise((void *)allocation->start, allocation->size, MADV_DONTNEED);
    else sim_pages_free((void *)allocation->start, allocation->charged);
    if (allocation->file) close(allocation->file);
    if (!sim_handle_is(allocation->context, SIM_CONTEXT) || allocation->context->dead) return;
    if (allocation->memory == SIM_OF_GRAPH) sim_graphs_give(allocation->context, allocation->charged);
    else if (allocation->memory == SIM_MANAGED) sim_managed_return(allocation->context, allocation->range);
    else sim_memory_return(allocation->context, allocation->charged);
}
