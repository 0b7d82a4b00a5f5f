/* Memory of the device and of the host, and queries of addresses. */
#include <stdlib.h>
#include <string.h>

#include "allocation.h"
#include "capture.h"
#include "checkpoint.h"

CUresult CUDAAPI cuMemGetInfo_v2(size_t *available, size_t *total)
{
    SIM_REFUSE(sim_checkpoint_is_away(), CUDA_ERROR_OPERATING_SYSTEM);
    SIM_CONTEXT(context);
    SIM_REFUSE(!available || !total, CUDA_ERROR_INVALID_VALUE);
    sim_enter();
    uint64_t used = sim_state()->gpus[sim_device_gpu(context->device)].memory;
    sim_leave();
    *total = sim_machine->parameters.memory;
    *available = *total - used;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *pointer, size_t size)
{
    SIM_CONTEXT(context);
    SIM_REFUSE(!pointer || !size, CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(sim_capture_unsafe());
    uintptr_t start;
    SIM_TRY(sim_device_memory(context, size, SIM_DEVICE_MEMORY, &start));
    *pointer = start;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned element)
{
    SIM_REFUSE(!pointer || !pitch || !width || !height, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(element != 4 && element != 8 && element != 16, CUDA_ERROR_INVALID_VALUE);
    size_t row = (width + 511) / 512 * 512;
    SIM_REFUSE(row > SIZE_MAX / height, CUDA_ERROR_OUT_OF_MEMORY);
    SIM_TRY(cuMemAlloc_v2(pointer, row * height));
    *pitch = row;
    return CUDA_SUCCESS;
}

/* Functions that free memory first wait for the device, as the real cuMemFree does. */
static CUresult synchronise(struct CUctx_st *context)
{
    return context == sim_current() ? cuCtxSynchronize_v2(context) : CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr pointer)
{
    SIM_CONTEXT(context);
    struct sim_allocation allocation;
    SIM_REFUSE(!pointer, CUDA_SUCCESS);
    SIM_TRY(sim_capture_unsafe());
    SIM_REFUSE(!sim_allocation_find(pointer, &allocation) || allocation.start != pointer, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(allocation.memory != SIM_DEVICE_MEMORY && allocation.memory != SIM_MANAGED && allocation.memory != SIM_POOLED &&
                   allocation.memory != SIM_OF_GRAPH,
               CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(synchronise(context));
    SIM_REFUSE(!sim_allocation_remove(pointer, &allocation), CUDA_ERROR_INVALID_VALUE);
    if (allocation.memory == SIM_POOLED) return sim_pool_free(&allocation);
    sim_device_memory_free(&allocation);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *size, CUdeviceptr pointer)
{
    SIM_IN_CONTEXT();
    struct sim_allocation found;
    SIM_REFUSE(!sim_allocation_find(pointer, &found), CUDA_ERROR_NOT_FOUND);
    if (start) *start = found.start;
    if (size) *size = found.size;
    return CUDA_SUCCESS;
}

static CUresult host_alloc(struct CUctx_st *context, void **pointer, size_t size, unsigned flags)
{
    SIM_REFUSE(!pointer || !size, CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(sim_capture_unsafe());
    struct sim_allocation allocation = {.size = size, .memory = SIM_PINNED, .flags = flags, .context = context};
    SIM_REFUSE(!sim_allocation_make(&allocation, size), CUDA_ERROR_OUT_OF_MEMORY);
    *pointer = (void *)allocation.start;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostAlloc(void **pointer, size_t size, unsigned flags)
{
    SIM_CONTEXT(context);
    SIM_REFUSE(flags & ~7u, CUDA_ERROR_INVALID_VALUE);
    return host_alloc(context, pointer, size, flags | CU_MEMHOSTALLOC_DEVICEMAP);
}

CUresult CUDAAPI cuMemAllocHost_v2(void **pointer, size_t size)
{
    SIM_CONTEXT(context);
    return host_alloc(context, pointer, size, CU_MEMHOSTALLOC_DEVICEMAP);
}

CUresult CUDAAPI cuMemFreeHost(void *pointer)
{
    SIM_CONTEXT(context);
    struct sim_allocation allocation;
    SIM_REFUSE(!pointer, CUDA_SUCCESS);
    SIM_REFUSE(!sim_allocation_find((uintptr_t)pointer, &allocation) || allocation.memory != SIM_PINNED ||
                   allocation.start != (uintptr_t)pointer,
               CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(sim_capture_unsafe());
    SIM_TRY(synchronise(context));
    sim_allocation_remove((uintptr_t)pointer, &allocation);
    sim_pages_free(pointer, allocation.size);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostRegister_v2(void *pointer, size_t size, unsigned flags)
{
    SIM_CONTEXT(context);
    struct sim_allocation allocation = {.start = (uintptr_t)pointer,
                                        .size = size,
                                        .memory = SIM_REGISTERED,
                                        .flags = flags,
                                        .context = context},
                          found;
    SIM_REFUSE(!pointer || !size || (flags & ~15u), CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(sim_capture_unsafe());
    SIM_REFUSE(sim_allocation_find((uintptr_t)pointer, &found), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    return sim_allocation_add(&allocation) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuMemHostUnregister(void *pointer)
{
    SIM_IN_CONTEXT();
    struct sim_allocation found;
    SIM_REFUSE(!pointer, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_allocation_find((uintptr_t)pointer, &found) || found.memory != SIM_REGISTERED,
               CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    SIM_REFUSE(found.start != (uintptr_t)pointer, CUDA_ERROR_INVALID_VALUE);
    sim_allocation_remove((uintptr_t)pointer, &found);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *pointer, unsigned flags)
{
    SIM_IN_CONTEXT();
    struct sim_allocation found;
    SIM_REFUSE(!device || !pointer || flags, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_allocation_find((uintptr_t)pointer, &found), CUDA_ERROR_INVALID_VALUE);
    *device = (CUdeviceptr)(uintptr_t)pointer;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned *flags, void *pointer)
{
    SIM_IN_CONTEXT();
    struct sim_allocation found;
    SIM_REFUSE(!flags || !pointer, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_allocation_find((uintptr_t)pointer, &found), CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(found.memory != SIM_PINNED, CUDA_ERROR_INVALID_VALUE);
    *flags = found.flags;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *pointer, size_t size, unsigned flags)
{
    SIM_CONTEXT(context);
    SIM_REFUSE(!pointer || !size || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST), CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(sim_capture_unsafe());
    uintptr_t start;
    SIM_TRY(sim_managed_memory(context, size, &start));
    *pointer = start;
    return CUDA_SUCCESS;
}
