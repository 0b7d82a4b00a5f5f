/* One memory pool, whose numbers a test reads and sets. It does what the driver's pools do: it grows in steps of 32 MiB, keeps what is
 * freed until a synchronisation, and may not be able to use its free part for an allocation. */
#ifndef ORION_TEST_PLAYED_POOL_H
#define ORION_TEST_PLAYED_POOL_H

#include "check.h"

#include <fcntl.h>
#include <pthread.h>

#include "agent/credit.h"
#include "fake_driver.h"
#include "memory/memory.h"
#include "memory/pools.h"
#include "system/system.h"

#define MIB (UINT64_C(1) << 20)
#define STEP (32 * MIB)
#define LIMIT (512 * MIB)
#define DEFAULT ((CUmemoryPool)0x10000)
#define CREATED ((CUmemoryPool)0x20000)
#define OF_SECOND ((CUmemoryPool)0x50000) /* the default pool of a device without a context */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t said_when_asked;      /* what the process said to have taken when it last asked the driver for memory */
static uint64_t held, taken, pending; /* pending: freed, but not given back before the next synchronisation */
static bool fragmented;               /* no allocation fits into the free part */
static unsigned trims, next_address;
static void (*after_held)(void); /* runs once, after the driver has said what it holds */
static uint64_t size_of[1u << 20];
static struct orion_gpu *gpu;
static _Atomic unsigned asked;
static _Atomic bool silent, without_descriptors;

static inline CUresult CUDAAPI fake_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    (void)pool;
    atomic_fetch_add(&asked, 1);
    if (fcntl(0, F_GETFD) < 0) atomic_store(&without_descriptors, true);
    if (atomic_load(&silent)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    pthread_mutex_lock(&mutex);
    bool asked_held = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
    void (*then)(void) = asked_held ? after_held : NULL;
    *(uint64_t *)value = asked_held ? held : taken;
    pthread_mutex_unlock(&mutex);
    if (then != NULL) after_held = NULL, then();
    return CUDA_SUCCESS;
}
static CUmemoryPool current = DEFAULT;

static inline CUresult CUDAAPI fake_current(CUmemoryPool *pool, CUdevice device)
{
    *pool = current;
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
static inline CUresult CUDAAPI fake_default(CUmemoryPool *pool, CUdevice device)
{
    *pool = device == 0 ? DEFAULT : OF_SECOND;
    return CUDA_SUCCESS;
}
static inline CUresult CUDAAPI fake_count(int *devices)
{
    *devices = 2;
    return CUDA_SUCCESS;
}
static inline CUresult CUDAAPI fake_trim(CUmemoryPool pool, size_t keep)
{
    (void)pool;
    pthread_mutex_lock(&mutex);
    trims++;
    uint64_t least = (taken + pending + STEP - 1) / STEP * STEP;
    if (least < keep) least = keep;
    if (held > least) held = least;
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}
static inline uint64_t said_to_be_taken(void) { return atomic_load(&gpu->record->memory_taken) & ~ORION_MEMORY_TAKEN; }
static inline CUresult take(CUdeviceptr *at, uint64_t bytes)
{
    pthread_mutex_lock(&mutex);
    said_when_asked = said_to_be_taken();
    uint64_t left = fragmented ? 0 : held - taken;
    if (bytes > left) held += (bytes - left + STEP - 1) / STEP * STEP;
    taken += bytes;
    if (pending > held - taken) pending = held - taken;
    *at = ++next_address * UINT64_C(512);
    size_of[next_address] = bytes;
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}
static inline CUresult CUDAAPI fake_free(CUdeviceptr at, CUstream stream)
{
    (void)stream;
    pthread_mutex_lock(&mutex);
    taken -= size_of[at / 512];
    pending += size_of[at / 512];
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}
static inline void synchronise(void)
{
    pthread_mutex_lock(&mutex);
    pending = 0;
    pthread_mutex_unlock(&mutex);
}

/* As the wrappers of cuMemAllocFromPoolAsync and cuMemFreeAsync. */
static inline bool may_begin(struct orion_pooling *pooling)
{
    orion_pool_begin(pooling);
    return orion_pool_may_begin(pooling);
}
static inline CUresult allocate(CUdeviceptr *at, uint64_t bytes, CUmemoryPool pool)
{
    struct orion_pooling pooling = {.pool = pool, .stream = {(CUstream)0x20, false}, .bytes = bytes};
    if (!may_begin(&pooling)) return CUDA_ERROR_OUT_OF_MEMORY;
    return orion_pool_ended(&pooling, at, take(at, bytes));
}
static inline void release(CUdeviceptr at)
{
    struct orion_release released = orion_memory_releasing(at);
    orion_memory_released(&released, fake_free(at, NULL));
}

static inline uint64_t counted(void) { return atomic_load(&gpu->record->memory_bytes); }

static inline void give_back_what_is_free(void)
{
    synchronise();
    fake_trim(NULL, 0);
    orion_pools_look(0);
}

/* A be process whose slot has the limit, on a driver with that pool. */
static inline void play_pool(void)
{
    gpu = fake_gpu(ORION_ROLE_BE);
    orion_driver.cuMemPoolGetAttribute = fake_attribute;
    orion_driver.cuDeviceGetDefaultMemPool = fake_default;
    orion_driver.cuDeviceGetCount = fake_count;
    orion_driver.cuDeviceGetMemPool = fake_current;
    orion_driver.cuMemPoolTrimTo = fake_trim;
    orion_driver.cuMemFreeAsync = fake_free;
    struct orion_grant *grant = ((struct orion_grant_page *)(uintptr_t)gpu->grant)->copy;
    grant[0].memory_limit_bytes = grant[1].memory_limit_bytes = LIMIT;
}

#endif
