/* The commands `alloc` and `info`. `alloc` allocates device memory in every way that programs use, because the hook
 * must count each of them. */
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

static CUresult without_address(size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp device_0 = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    return cuMemCreate(&handle, bytes, &device_0, 0);
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

double allocate(const struct arguments *at)
{
    CUdeviceptr pointer;
    size_t bytes = (size_t)at->a;
    switch ((int)at->b) {
    case 0: return cuMemAlloc(&pointer, bytes);
    case 1: return by_pitch(bytes);
    case 2: return cuMemAllocManaged(&pointer, bytes, CU_MEM_ATTACH_GLOBAL);
    case 3: return cuMemAllocAsync(&pointer, bytes, NULL);
    case 4: return from_pool(bytes);
    case 5: return without_address(bytes);
    case 6: return as_array(bytes);
    default: return as_levels(bytes);
    }
}

double information(const struct arguments *at)
{
    size_t free_bytes = 0, total = 0;
    (void)at;
    return cuMemGetInfo(&free_bytes, &total) ? -1 : (double)total;
}
