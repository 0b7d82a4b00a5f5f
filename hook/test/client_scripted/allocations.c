/* The commands `alloc`, `many`, `unmap`, `copyin`, `info` and `total`. `alloc` allocates device memory in every way that programs use,
 * because the hook must count each of them. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "scripted.h"

static CUresult by_pitch(size_t bytes)
{
    CUdeviceptr pointer;
    size_t pitch;
    return cuMemAllocPitch(&pointer, &pitch, 1 << 20, bytes >> 20, 16);
}

static CUresult from_pool(size_t bytes)
{
    CUdevice device;
    CUdeviceptr pointer;
    CUmemoryPool pool;
    CUresult result;
    if ((result = cuCtxGetDevice(&device)) || (result = cuDeviceGetDefaultMemPool(&pool, device))) return result;
    return cuMemAllocFromPoolAsync(&pointer, bytes, pool, NULL);
}

/* A pool of device 1, also where the program has a context on device 0 only. `created`: the program makes the pool. */
static CUresult from_pool_of_second(size_t bytes, bool created)
{
    const CUmemPoolProps there = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    CUdeviceptr pointer;
    CUmemoryPool pool;
    CUresult result = created ? cuMemPoolCreate(&pool, &there) : cuDeviceGetDefaultMemPool(&pool, 1);
    return result ? result : cuMemAllocFromPoolAsync(&pointer, bytes, pool, NULL);
}

/* On the device of the current context; without one, on device 0. */
static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes)
{
    CUdevice device;
    if (cuCtxGetDevice(&device)) device = 0;
    const CUmemAllocationProp there = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    return cuMemCreate(handle, bytes, &there, 0);
}

static CUresult without_address(size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    return create(&handle, bytes);
}

static struct {
    CUdeviceptr at;
    size_t bytes;
} last_mapping;

/* Maps memory twice and releases its handle at once, as the memory pools of some programs do. `retained`: gets the handle
 * back from the mapping and releases it again. */
static CUresult only_mapped(size_t bytes, bool retained)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    CUresult result;
    if ((result = cuMemAddressReserve(&at, 2 * bytes, 0, 0, 0)) || (result = create(&handle, bytes))) return result;
    if ((result = cuMemMap(at, bytes, 0, handle, 0)) || (result = cuMemMap(at + bytes, bytes, 0, handle, 0))) return result;
    last_mapping.at = at, last_mapping.bytes = bytes;
    if ((result = cuMemRelease(handle)) || !retained) return result;
    if ((result = cuMemRetainAllocationHandle(&handle, (char *)(uintptr_t)at + bytes / 2))) return result;
    return cuMemRelease(handle);
}

/* The first argument is 1: removes the first of the two mappings. 2: removes the second one. 3: removes both in one call. */
double unmap(const struct arguments *at)
{
    size_t bytes = last_mapping.bytes;
    return cuMemUnmap(last_mapping.at + (at->a == 2 ? bytes : 0), at->a == 3 ? 2 * bytes : bytes);
}

/* Allocates repeatedly; returns how many allocations succeeded. */
double allocate_many(const struct arguments *at)
{
    CUdeviceptr pointer;
    unsigned done = 0;
    while (done < at->a && !cuMemAlloc(&pointer, (size_t)at->b)) done++;
    return done;
}

static CUresult as_array(size_t bytes)
{
    CUarray array;
    const CUDA_ARRAY_DESCRIPTOR flat = {1 << 10, bytes >> 10, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    return cuArrayCreate(&array, &flat);
}

static CUresult as_levels(size_t bytes)
{
    CUmipmappedArray array;
    const CUDA_ARRAY3D_DESCRIPTOR flat = {.Width = 1 << 10,
                                          .Height = bytes >> 10,
                                          .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                          .NumChannels = 1};
    return cuMipmappedArrayCreate(&array, &flat, 1);
}

static CUdeviceptr last; /* of the ways 0 and 2 */

double allocate(const struct arguments *at)
{
    CUdeviceptr pointer;
    size_t bytes = (size_t)at->a;
    switch ((int)at->b) {
    case 0: return cuMemAlloc(&last, bytes);
    case 1: return by_pitch(bytes);
    case 2: return cuMemAllocManaged(&last, bytes, CU_MEM_ATTACH_GLOBAL);
    case 3: return cuMemAllocAsync(&pointer, bytes, NULL);
    case 4: return from_pool(bytes);
    case 5: return without_address(bytes);
    case 6: return as_array(bytes);
    case 7: return as_levels(bytes);
    case 8: return only_mapped(bytes, false);
    case 10: return from_pool_of_second(bytes, false);
    case 11: return from_pool_of_second(bytes, true);
    default: return only_mapped(bytes, true);
    }
}

/* Of the last allocation: whether it is managed memory; what the driver says when another process shall have it, when a device shall
 * have it or no longer (a: the attribute's value), when the program asks for the type and another attribute (a), and when it frees it. */
double is_managed(const struct arguments *at)
{
    unsigned managed = 0;
    (void)at;
    return cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, last) ? -1 : (double)managed;
}

double share_last(const struct arguments *at)
{
    CUipcMemHandle handle;
    (void)at;
    return cuIpcGetMemHandle(&handle, last);
}

double pin_last(const struct arguments *at)
{
    const unsigned value = (unsigned)at->a;
    return cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, last);
}

double ask_last(const struct arguments *at)
{
    uint64_t type[2], asked[2];
    void *into[] = {type, asked};
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUpointer_attribute)at->a};
    return cuPointerGetAttributes(2, attributes, into, last);
}

double free_last(const struct arguments *at)
{
    (void)at;
    return cuMemFree(last);
}

double information(const struct arguments *at)
{
    size_t free_bytes = 0, total = 0;
    (void)at;
    return cuMemGetInfo(&free_bytes, &total) ? -1 : (double)total;
}

/* The total memory of device a, which needs no context. */
double total_memory(const struct arguments *at)
{
    size_t total = 0;
    return cuDeviceTotalMem(&total, (CUdevice)at->a) ? -1 : (double)total;
}

double inform(const struct arguments *at)
{
    char text[64];
    int number;
    unsigned flags;
    size_t bytes;
    CUuuid uuid;
    CUmemoryPool pool;
    CUdevice device = (CUdevice)at->a;
    CUmemAllocationProp memory = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    const CUresult results[] = {
        cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
        cuDeviceGetName(text, sizeof text, device),
        cuDeviceGetUuid(&uuid, device),
        cuDeviceGetPCIBusId(text, sizeof text, device),
        cuDeviceCanAccessPeer(&number, device, device == 0),
        cuDeviceGetP2PAttribute(&number, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, device, device == 0),
        cuDevicePrimaryCtxGetState(device, &flags, &number),
        cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_AUTO),
        cuDeviceGetDefaultMemPool(&pool, device),
        cuMemGetAllocationGranularity(&bytes, &memory, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
    };
    for (unsigned i = 0; i < sizeof results / sizeof results[0]; i++)
        if (results[i] != CUDA_SUCCESS) return results[i];
    return CUDA_SUCCESS;
}

static double cpu_of_thread(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

#define AWAITED_MS 10000u

static _Atomic uint32_t released; /* 2: the host function has given up */

static void CUDA_CB await_release(void *unused)
{
    uint32_t waits = 0;
    (void)unused;
    for (unsigned ms = 0; ms < AWAITED_MS && atomic_load(&released) == 0; ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_compare_exchange_strong(&released, &waits, 2);
}

/* A small copy behind work that ends only once the copy has returned. CUDA_ERROR_LAUNCH_TIMEOUT: it has not returned. */
static CUresult copy_behind_waiting_work(CUdeviceptr to, const void *from, size_t bytes)
{
    uint32_t waits = 0;
    CUresult result = cuCtxSynchronize();
    atomic_store(&released, 0);
    if (result == CUDA_SUCCESS) result = cuLaunchHostFunc(NULL, await_release, NULL);
    if (result == CUDA_SUCCESS) result = cuMemcpyHtoD(to, from, bytes);
    bool returned = atomic_compare_exchange_strong(&released, &waits, 1);
    return result != CUDA_SUCCESS || returned ? result : CUDA_ERROR_LAUNCH_TIMEOUT;
}

double copy_in(const struct arguments *at)
{
    size_t bytes = (size_t)at->a;
    char *from = calloc(1, bytes);
    CUdeviceptr to;
    CUresult result = cuMemAlloc(&to, bytes);
    const CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                               .srcHost = from,
                               .srcPitch = bytes,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = to,
                               .dstPitch = bytes,
                               .WidthInBytes = bytes,
                               .Height = 1};
    double cpu = cpu_of_thread();
    if (at->b == 3) return result == CUDA_SUCCESS ? cuMemcpyHtoD(to, from, bytes) : result; /* cuMemFree would wait, too */
    if (at->b == 4) return result == CUDA_SUCCESS ? copy_behind_waiting_work(to, from, bytes) : result;
    if (result == CUDA_SUCCESS)
        result = at->b < 1   ? cuMemcpyHtoD(to, from, bytes)
                 : at->b < 2 ? cuMemcpy(to, (CUdeviceptr)(uintptr_t)from, bytes)
                             : cuMemcpy2D(&box);
    show_cpu(cpu_of_thread() - cpu);
    cuMemFree(to);
    free(from);
    return result;
}
