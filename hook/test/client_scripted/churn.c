/* The commands `churn` and `room`. `churn` allocates and frees device memory at random in many threads; others look meanwhile
 * at what the device has left. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "scripted.h"

#define HELD 32u
#define THREADS 64u
#define WAYS 6u
#define POOLS 2u /* the device's, which keeps what is freed, and one of the process, which does not */

struct churner {
    pthread_t thread;
    unsigned seed, ways;
    uint64_t end;
    double done, refused;
};
struct held {
    unsigned way;
    CUdeviceptr at;
    CUmemGenericAllocationHandle handle;
    size_t bytes;
};

static CUmemoryPool pools[POOLS];

static bool is_refused(CUresult result) { return result == CUDA_ERROR_OUT_OF_MEMORY; }

static void make_pools(void)
{
    CUdevice device;
    cuuint64_t all = UINT64_MAX;
    if (pools[0] != NULL || cuCtxGetDevice(&device) || cuDeviceGetDefaultMemPool(&pools[0], device)) return;
    const CUmemPoolProps there = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    cuMemPoolSetAttribute(pools[0], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all);
    cuMemPoolCreate(&pools[1], &there);
}

/* Maps memory and releases its handle at once. */
static CUresult map(struct held *one)
{
    CUdevice device;
    CUresult result = cuCtxGetDevice(&device);
    const CUmemAllocationProp there = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    if (!result) result = cuMemCreate(&one->handle, one->bytes, &there, 0);
    if (result) return result;
    result = cuMemAddressReserve(&one->at, one->bytes, 0, 0, 0);
    if (!result && (result = cuMemMap(one->at, one->bytes, 0, one->handle, 0))) cuMemAddressFree(one->at, one->bytes);
    cuMemRelease(one->handle);
    return result;
}

/* Whole pages of the driver. The pitched allocation has rows of 512 bytes. */
static CUresult take(struct held *one)
{
    size_t pitch;
    switch (one->way) {
    case 0: return cuMemAlloc(&one->at, one->bytes);
    case 1: return cuMemAllocPitch(&one->at, &pitch, 512, one->bytes / 512, 16);
    case 2: return cuMemAllocAsync(&one->at, one->bytes, CU_STREAM_PER_THREAD);
    case 3: return cuMemAllocFromPoolAsync(&one->at, one->bytes, pools[1], CU_STREAM_PER_THREAD);
    case 4: return cuMemAllocManaged(&one->at, one->bytes, CU_MEM_ATTACH_GLOBAL);
    default: return map(one);
    }
}

static void give(struct held *one)
{
    if (one->way < 2 || one->way == 4) {
        cuMemFree(one->at);
    } else if (one->way < 4) {
        cuMemFreeAsync(one->at, CU_STREAM_PER_THREAD);
    } else {
        cuMemUnmap(one->at, one->bytes);
        cuMemAddressFree(one->at, one->bytes);
    }
    one->at = 0;
}

static void *churn_in_thread(void *argument)
{
    struct churner *self = argument;
    struct held held[HELD] = {0};
    if (cuCtxSetCurrent(used->context)) return NULL;
    while (now() < self->end) {
        struct held *one = &held[(unsigned)rand_r(&self->seed) % HELD];
        if (one->at != 0) {
            give(one);
            continue;
        }
        one->way = (unsigned)rand_r(&self->seed) % self->ways;
        one->bytes = (size_t)(1 + rand_r(&self->seed) % 32) << 21;
        CUresult result = take(one);
        if (result) one->at = 0;
        self->done += result == CUDA_SUCCESS, self->refused += is_refused(result);
        if (rand_r(&self->seed) % 64 == 0) cuMemPoolTrimTo(pools[0], 0);
    }
    for (unsigned i = 0; i < HELD; i++)
        if (held[i].at != 0) give(&held[i]);
    return NULL;
}

/* a: the number of threads; b: seconds; c: a seed; d: by every way, not by cuMemAlloc alone. Shows how many allocations were refused; returns how many succeeded. */
double churn(const struct arguments *at)
{
    static struct churner churners[THREADS];
    unsigned number = (unsigned)at->a < THREADS ? (unsigned)at->a : THREADS;
    double done = 0, refused = 0;
    make_pools();
    for (unsigned i = 0; i < number; i++) {
        churners[i] = (struct churner){.seed = (unsigned)at->c * 1000 + i + 1, .end = now() + (uint64_t)(at->b * 1e9)};
        churners[i].ways = at->d < 1 ? 1 : WAYS;
        pthread_create(&churners[i].thread, NULL, churn_in_thread, &churners[i]);
    }
    for (unsigned i = 0; i < number; i++) {
        pthread_join(churners[i].thread, NULL);
        done += churners[i].done, refused += churners[i].refused;
    }
    cuMemPoolTrimTo(pools[0], 0);
    show((uint64_t)refused);
    return done;
}

/* How much memory is free. */
double room(const struct arguments *at)
{
    size_t free_bytes = 0, total = 0;
    (void)at;
    return cuMemGetInfo(&free_bytes, &total) ? -1 : (double)free_bytes;
}
