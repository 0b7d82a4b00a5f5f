/* Queries of addresses, and hints about them. */
#include <string.h>

#include "allocation.h"
#include "capture.h"

static CUresult attribute_of(void *into, CUpointer_attribute attribute, const struct sim_allocation *found, CUdeviceptr pointer)
{
    bool host = found->memory == SIM_PINNED || found->memory == SIM_REGISTERED;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)into = found->memory == SIM_MAPPED ? NULL : found->context; break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)into = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)into = pointer; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        SIM_REFUSE(!host && found->memory != SIM_MANAGED, CUDA_ERROR_INVALID_VALUE);
        *(void **)into = (void *)(uintptr_t)pointer;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)into = found->id; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)into = found->memory == SIM_MANAGED; break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: *(unsigned *)into = 0; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)into = sim_handle_is(found->context, SIM_CONTEXT) ? found->context->device : 0;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)into = found->start; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)into = found->size; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(unsigned *)into = 1; break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *(unsigned *)into = 0; break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: *(uint64_t *)into = 0; break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: *(CUmemoryPool *)into = found->memory == SIM_POOLED ? found->pool : NULL; break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: *(unsigned *)into = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttribute(void *into, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    struct sim_allocation found;
    SIM_READY();
    SIM_REFUSE(!into, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_allocation_find(pointer, &found), CUDA_ERROR_INVALID_VALUE);
    return attribute_of(into, attribute, &found, pointer);
}

/* Unlike cuPointerGetAttribute, this function accepts unknown addresses: it returns zeroes (device ordinal: -2). */
CUresult CUDAAPI cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **into, CUdeviceptr pointer)
{
    struct sim_allocation found;
    SIM_READY();
    SIM_REFUSE(!count || !attributes || !into, CUDA_ERROR_INVALID_VALUE);
    bool known = sim_allocation_find(pointer, &found);
    for (unsigned i = 0; i < count; i++) {
        SIM_REFUSE(!into[i], CUDA_ERROR_INVALID_VALUE);
        bool narrow = attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE || attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
                      attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL || attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED ||
                      attributes[i] == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
        if (known && attribute_of(into[i], attributes[i], &found, pointer) == CUDA_SUCCESS) continue;
        memset(into[i], 0, narrow ? 4 : 8);
        if (!known && attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *(int *)into[i] = -2;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    struct sim_allocation found;
    SIM_READY();
    SIM_REFUSE(!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUDA_ERROR_INVALID_VALUE);
    return sim_allocation_find(pointer, &found) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult managed(CUdeviceptr pointer, size_t size)
{
    struct sim_allocation found;
    SIM_REFUSE(!size || !sim_allocation_find(pointer, &found) || found.memory != SIM_MANAGED ||
                   size > found.size - (pointer - found.start),
               CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static CUresult location(CUmemLocation at)
{
    SIM_REFUSE(at.type == CU_MEM_LOCATION_TYPE_DEVICE && !sim_device_valid(at.id), CUDA_ERROR_INVALID_DEVICE);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAdvise_v2(CUdeviceptr pointer, size_t size, CUmem_advise advice, CUmemLocation at)
{
    (void)advice;
    SIM_READY();
    SIM_TRY(location(at));
    return managed(pointer, size);
}

CUresult CUDAAPI cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t size, CUmemLocation to, unsigned flags, CUstream handle)
{
    SIM_STREAM(stream, handle);
    SIM_REFUSE(flags, CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(location(to));
    SIM_TRY(managed(pointer, size));
    SIM_TRY(sim_capture_touches(stream));
    if (stream->capture) return sim_capture_refuse(stream);
    bool up = to.type == CU_MEM_LOCATION_TYPE_DEVICE;
    return sim_submit_prefetch(stream, up ? SIM_HOST_TO_DEVICE : SIM_DEVICE_TO_HOST, pointer, size);
}

CUresult CUDAAPI cuMemRangeGetAttribute(void *into, size_t size, CUmem_range_attribute attribute, CUdeviceptr pointer, size_t count)
{
    (void)attribute;
    SIM_READY();
    SIM_REFUSE(!into || !size, CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(managed(pointer, count));
    memset(into, 0, size);
    return CUDA_SUCCESS;
}

/* All simulated GPUs are host memory, so every GPU can access its peers. */
CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    SIM_CONTEXT(context);
    SIM_REFUSE(flags, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_handle_is(peer, SIM_CONTEXT), CUDA_ERROR_INVALID_CONTEXT);
    SIM_REFUSE(peer->device == context->device, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    unsigned bit = 1u << peer->device;
    SIM_REFUSE(context->peers & bit, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    context->peers |= bit;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer)
{
    SIM_CONTEXT(context);
    SIM_REFUSE(!sim_handle_is(peer, SIM_CONTEXT), CUDA_ERROR_INVALID_CONTEXT);
    unsigned bit = 1u << peer->device;
    SIM_REFUSE(!(context->peers & bit), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    context->peers &= ~bit;
    return CUDA_SUCCESS;
}
