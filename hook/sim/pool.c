/* Stream-ordered allocation and its pools.
 *
 * Allocation and freeing take effect at once, because the bytes of copies also move at once. They do not wait for
 * earlier work of the stream. A pool keeps freed bytes up to its release threshold. These bytes count as used on the
 * device, as in the driver. Allocations use kept bytes first, so a loop of allocate and free does not change the
 * device's account. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "allocation.h"
#include "capture.h"
#include "checkpoint.h"
#include "graph.h"

struct CUmemPoolHandle_st {
    uint32_t kind;
    struct CUctx_st *context; /* the context that allocated last; its account is charged */
    int device;
    bool is_default;
    int reuse[3]; /* the three reuse policies: stored, without effect */
    uint64_t threshold, kept, used, used_high, reserved_high;
};

static struct CUmemPoolHandle_st *defaults[SIM_GPUS], *chosen[SIM_GPUS], *of_graphs[SIM_GPUS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct CUmemPoolHandle_st *pool_new(int device)
{
    struct CUmemPoolHandle_st *pool = sim_handle_new(SIM_POOL, sizeof *pool);
    if (pool) {
        pool->device = device;
        pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
    }
    return pool;
}

static CUresult default_pool(CUdevice device, CUmemoryPool *pool)
{
    SIM_READY();
    SIM_REFUSE(!pool, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_device_valid(device), CUDA_ERROR_INVALID_DEVICE);
    pthread_mutex_lock(&mutex);
    if (!defaults[device] && (defaults[device] = pool_new(device))) defaults[device]->is_default = true;
    *pool = defaults[device];
    pthread_mutex_unlock(&mutex);
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Return kept bytes to the device until at most `most` are kept. Under the mutex. */
static void release(struct CUmemPoolHandle_st *pool, uint64_t most)
{
    uint64_t excess = pool->kept > most ? pool->kept - most : 0;
    if (excess && sim_handle_is(pool->context, SIM_CONTEXT) && !pool->context->dead) sim_memory_return(pool->context, excess);
    pool->kept -= excess;
}

/* Take memory for an allocation: first of what the pool keeps. Under the mutex. */
static bool take(struct CUmemPoolHandle_st *pool, struct CUctx_st *context, uint64_t charged)
{
    if (pool->context != context) { /* the kept bytes are charged to that other context, which may be destroyed */
        release(pool, 0);
        pool->context = context;
    }
    uint64_t reused = charged < pool->kept ? charged : pool->kept;
    if (!sim_memory_take(context, charged - reused)) return false;
    pool->kept -= reused;
    pool->used += charged;
    pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
    uint64_t reserved = pool->used + pool->kept;
    pool->reserved_high = reserved > pool->reserved_high ? reserved : pool->reserved_high;
    return true;
}

/* The device's account changes only by what the pool then gives back: other processes look at it at any time. `pool` may
 * be destroyed. Under the mutex. */
static void give(struct CUmemPoolHandle_st *pool, struct CUctx_st *context, uint64_t charged)
{
    bool alive = sim_handle_is(context, SIM_CONTEXT) && !context->dead, of_pool = sim_handle_is(pool, SIM_POOL);
    if (of_pool) pool->used -= charged;
    if (of_pool && alive && pool->context == context) {
        pool->kept += charged;
        release(pool, pool->threshold);
    } else if (alive) {
        sim_memory_return(context, charged);
    }
}

static CUresult allocate(struct CUmemPoolHandle_st *pool, struct CUctx_st *context, size_t size, uintptr_t *start)
{
    uint64_t charged = sim_charge(size);
    SIM_REFUSE(size > sim_machine->parameters.memory || !take(pool, context, charged), CUDA_ERROR_OUT_OF_MEMORY);
    struct sim_allocation allocation = {.size = size, .charged = charged, .memory = SIM_POOLED, .context = context, .pool = pool};
    if (!sim_allocation_make(&allocation, charged)) {
        give(pool, context, charged);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *start = allocation.start;
    return CUDA_SUCCESS;
}

CUresult sim_pool_free(const struct sim_allocation *allocation)
{
    pthread_mutex_lock(&mutex);
    sim_pages_free((void *)allocation->start, allocation->charged);
    give(allocation->pool, allocation->context, allocation->charged);
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

/* -- Memory of graphs: a hidden pool of each device, which keeps everything until it is trimmed ---------------------- */

static struct CUmemPoolHandle_st *pool_of_graphs(int device)
{
    if (!of_graphs[device] && (of_graphs[device] = pool_new(device))) of_graphs[device]->threshold = UINT64_MAX;
    return of_graphs[device];
}

bool sim_graphs_take(struct CUctx_st *context, uint64_t charged)
{
    pthread_mutex_lock(&mutex);
    struct CUmemPoolHandle_st *pool = pool_of_graphs(context->device);
    bool taken = pool && take(pool, context, charged);
    pthread_mutex_unlock(&mutex);
    return taken;
}

void sim_graphs_give(struct CUctx_st *context, uint64_t charged)
{
    pthread_mutex_lock(&mutex);
    give(of_graphs[context->device], context, charged);
    pthread_mutex_unlock(&mutex);
}

CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    static const CUmemPool_attribute same[] = {CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_HIGH,
                                               CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH};
    SIM_READY();
    SIM_REFUSE(!sim_device_valid(device), CUDA_ERROR_INVALID_DEVICE);
    SIM_REFUSE(!value || (unsigned)attribute >= sizeof same / sizeof same[0], CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&mutex);
    struct CUmemPoolHandle_st *pool = pool_of_graphs(device);
    pthread_mutex_unlock(&mutex);
    return cuMemPoolGetAttribute(pool, same[attribute], value);
}

CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice device)
{
    SIM_READY();
    SIM_REFUSE(!sim_device_valid(device), CUDA_ERROR_INVALID_DEVICE);
    pthread_mutex_lock(&mutex);
    release(pool_of_graphs(device), 0);
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

/* -- The program's pools --------------------------------------------------------------------------------------------- */

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) { return default_pool(device, pool); }

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    SIM_TRY(default_pool(device, pool));
    if (chosen[device]) *pool = chosen[device];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    SIM_READY();
    SIM_REFUSE(!sim_device_valid(device), CUDA_ERROR_INVALID_DEVICE);
    SIM_REFUSE(!sim_handle_is(pool, SIM_POOL) || pool->device != device, CUDA_ERROR_INVALID_VALUE);
    chosen[device] = pool;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    SIM_READY();
    SIM_REFUSE(!pool || !properties, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
    SIM_REFUSE(!sim_device_valid(properties->location.id), CUDA_ERROR_INVALID_DEVICE);
    *pool = pool_new(properties->location.id);
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool)
{
    sim_checkpoint_read();
    SIM_READY();
    SIM_REFUSE(!sim_handle_is(pool, SIM_POOL) || pool->is_default, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&mutex);
    release(pool, 0);
    if (chosen[pool->device] == pool) chosen[pool->device] = NULL;
    sim_handle_free(pool);
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    SIM_READY();
    SIM_REFUSE(!sim_handle_is(pool, SIM_POOL), CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&mutex);
    release(pool, keep > pool->used ? keep - pool->used : 0);
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

#define POLICY(attribute) ((attribute) - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES)

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    SIM_READY();
    SIM_REFUSE(!value || !sim_handle_is(pool, SIM_POOL), CUDA_ERROR_INVALID_VALUE);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: *(int *)value = pool->reuse[POLICY(attribute)]; break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: *(uint64_t *)value = pool->threshold; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        pthread_mutex_lock(&mutex); /* bytes move between the two numbers */
        *(uint64_t *)value = pool->used + pool->kept;
        pthread_mutex_unlock(&mutex);
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: *(uint64_t *)value = pool->reserved_high; break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *(uint64_t *)value = pool->used; break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: *(uint64_t *)value = pool->used_high; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    SIM_READY();
    SIM_REFUSE(!value || !sim_handle_is(pool, SIM_POOL), CUDA_ERROR_INVALID_VALUE);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: pool->reuse[POLICY(attribute)] = *(int *)value; break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: pool->threshold = *(uint64_t *)value; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        SIM_REFUSE(*(uint64_t *)value, CUDA_ERROR_INVALID_VALUE);
        pool->reserved_high = pool->used + pool->kept;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        SIM_REFUSE(*(uint64_t *)value, CUDA_ERROR_INVALID_VALUE);
        pool->used_high = pool->used;
        break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
    SIM_READY();
    SIM_REFUSE(!sim_handle_is(pool, SIM_POOL) || (count && !access), CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
    SIM_READY();
    SIM_REFUSE(!flags || !location || !sim_handle_is(pool, SIM_POOL), CUDA_ERROR_INVALID_VALUE);
    *flags = location->id == pool->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t size, CUmemoryPool pool, CUstream handle)
{
    uintptr_t start;
    sim_checkpoint_read();
    SIM_STREAM(stream, handle);
    SIM_REFUSE(!pointer || !size || !sim_handle_is(pool, SIM_POOL), CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(sim_capture_touches(stream));
    if (stream->capture) return sim_capture_allocation(stream, size, pointer);
    pthread_mutex_lock(&mutex);
    CUresult result = allocate(pool, stream->context, size, &start);
    pthread_mutex_unlock(&mutex);
    if (!result) *pointer = start;
    return result;
}

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *pointer, size_t size, CUstream handle)
{
    CUmemoryPool pool;
    sim_checkpoint_read();
    SIM_STREAM(stream, handle);
    SIM_TRY(cuDeviceGetMemPool(&pool, stream->context->device));
    return cuMemAllocFromPoolAsync(pointer, size, pool, handle);
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr pointer, CUstream handle)
{
    struct sim_allocation allocation;
    SIM_STREAM(stream, handle);
    SIM_TRY(sim_capture_touches(stream));
    if (stream->capture) return sim_capture_free(stream, pointer);
    SIM_REFUSE(!pointer, CUDA_SUCCESS);
    SIM_REFUSE(!sim_allocation_find(pointer, &allocation) || allocation.start != pointer, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(allocation.memory != SIM_POOLED && allocation.memory != SIM_DEVICE_MEMORY && allocation.memory != SIM_OF_GRAPH,
               CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_allocation_remove(pointer, &allocation), CUDA_ERROR_INVALID_VALUE);
    if (allocation.memory == SIM_POOLED) return sim_pool_free(&allocation);
    sim_device_memory_free(&allocation);
    return CUDA_SUCCESS;
}
