#include <stddef.h>

#include "scripted.h"

static struct {
    CUevent begin, end;
    CUmodule module;
    CUmemoryPool pool;
    CUdeviceptr memory;
} made;

static CUresult make(void)
{
    CUmemPoolProps kind = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUresult result = cuEventCreate(&made.begin, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS) result = cuEventCreate(&made.end, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS) result = cuEventRecord(made.begin, NULL);
    if (result == CUDA_SUCCESS) result = cuEventRecord(made.end, NULL);
    if (result == CUDA_SUCCESS) result = cuModuleLoadData(&made.module, timed_code);
    if (result == CUDA_SUCCESS) result = cuMemPoolCreate(&made.pool, &kind);
    return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
}

double unstopped(const struct arguments *at)
{
    float milliseconds;
    size_t free_bytes, total;
    switch ((int)at->a) {
    case 0: return make();
    case 1: return cuStreamQuery(NULL);
    case 2: return cuEventQuery(made.end);
    case 3: return cuStreamSynchronize(NULL);
    case 4: return cuEventSynchronize(made.end);
    case 5: return cuCtxSynchronize();
    case 6: return cuEventElapsedTime(&milliseconds, made.begin, made.end);
    case 7: return cuMemAllocAsync(&made.memory, 1 << 16, NULL);
    case 8: return cuMemAllocFromPoolAsync(&made.memory, 1 << 16, made.pool, NULL);
    case 9: return cuMemPoolDestroy(made.pool);
    case 10: return cuModuleUnload(made.module);
    default: return cuMemGetInfo(&free_bytes, &total);
    }
}
