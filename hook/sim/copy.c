/* Copies. The bytes move when the call is made; the time passes in the stream. A program that waits before it reads the
 * target sees what it would see on a GPU. A program that does not wait may see the data too early. */
#include <string.h>

#include "allocation.h"
#include "capture.h"
#include "copy.h"

enum sim_engine sim_engine_for(const void *target, const void *source)
{
    if (!sim_on_device(target)) return SIM_DEVICE_TO_HOST;
    return sim_on_device(source) ? SIM_DEVICE_TO_DEVICE : SIM_HOST_TO_DEVICE;
}

/* Checks that a range that begins in an allocation also ends in that allocation. */
static bool inside(const void *address, size_t size)
{
    struct sim_allocation found;
    return !sim_allocation_find((uintptr_t)address, &found) || size <= found.size - ((uintptr_t)address - found.start);
}

static bool device_range(CUdeviceptr address, size_t size)
{
    struct sim_allocation found;
    return sim_allocation_find(address, &found) && size <= found.size - (address - found.start);
}

CUresult sim_copy(struct CUstream_st *stream, void *target, const void *source, size_t size)
{
    if (!size) return CUDA_SUCCESS;
    SIM_REFUSE(!target || !source || !inside(target, size) || !inside(source, size), CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(sim_capture_touches(stream));
    if (stream->capture) return sim_capture_copy(stream, target, source, size);
    memmove(target, source, size);
    return sim_submit_copy(stream, sim_engine_for(target, source), size);
}

#define AT_ONCE 65536u

/* Synchronous copies run in the default stream. The caller does not wait for a copy within the device, nor for a small one from the
 * host's memory (CUDA C++ Programming Guide, Asynchronous Concurrent Execution). */
static CUresult copy_now(void *target, const void *source, size_t size)
{
    enum sim_engine engine = sim_engine_for(target, source);
    SIM_STREAM(stream, NULL);
    SIM_TRY(sim_capture_unsafe());
    SIM_TRY(sim_copy(stream, target, source, size));
    bool at_once = engine == SIM_DEVICE_TO_DEVICE || (engine == SIM_HOST_TO_DEVICE && size <= AT_ONCE);
    return at_once ? CUDA_SUCCESS : sim_stream_wait(stream);
}

static CUresult copy_later(void *target, const void *source, size_t size, CUstream handle)
{
    SIM_STREAM(stream, handle);
    return sim_copy(stream, target, source, size);
}

#define AT(pointer) ((void *)(uintptr_t)(pointer))

CUresult CUDAAPI cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_t size) { return copy_now(AT(target), AT(source), size); }

CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t size, CUstream stream)
{
    return copy_later(AT(target), AT(source), size, stream);
}

CUresult CUDAAPI cuMemcpyHtoD_v2(CUdeviceptr target, const void *source, size_t size)
{
    SIM_IN_CONTEXT();
    SIM_REFUSE(size && !device_range(target, size), CUDA_ERROR_INVALID_VALUE);
    return copy_now(AT(target), source, size);
}

CUresult CUDAAPI cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t size, CUstream stream)
{
    SIM_READY();
    SIM_REFUSE(size && !device_range(target, size), CUDA_ERROR_INVALID_VALUE);
    return copy_later(AT(target), source, size, stream);
}

CUresult CUDAAPI cuMemcpyDtoH_v2(void *target, CUdeviceptr source, size_t size)
{
    SIM_IN_CONTEXT();
    SIM_REFUSE(size && !device_range(source, size), CUDA_ERROR_INVALID_VALUE);
    return copy_now(target, AT(source), size);
}

CUresult CUDAAPI cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t size, CUstream stream)
{
    SIM_READY();
    SIM_REFUSE(size && !device_range(source, size), CUDA_ERROR_INVALID_VALUE);
    return copy_later(target, AT(source), size, stream);
}

CUresult CUDAAPI cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source, size_t size)
{
    SIM_IN_CONTEXT();
    SIM_REFUSE(size && (!device_range(target, size) || !device_range(source, size)), CUDA_ERROR_INVALID_VALUE);
    return copy_now(AT(target), AT(source), size);
}

CUresult CUDAAPI cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t size, CUstream stream)
{
    SIM_READY();
    SIM_REFUSE(size && (!device_range(target, size) || !device_range(source, size)), CUDA_ERROR_INVALID_VALUE);
    return copy_later(AT(target), AT(source), size, stream);
}

CUresult CUDAAPI cuMemcpyPeer(CUdeviceptr target, CUcontext to, CUdeviceptr source, CUcontext from, size_t size)
{
    SIM_REFUSE(!to || !from, CUDA_ERROR_INVALID_CONTEXT);
    return cuMemcpyDtoD_v2(target, source, size);
}

CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr target, CUcontext to, CUdeviceptr source, CUcontext from, size_t size,
                                   CUstream stream)
{
    SIM_REFUSE(!to || !from, CUDA_ERROR_INVALID_CONTEXT);
    return cuMemcpyDtoDAsync_v2(target, source, size, stream);
}

CUresult CUDAAPI cuMemcpyBatchAsync_v2(CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes, size_t count,
                                       CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count, CUstream stream)
{
    SIM_READY();
    SIM_REFUSE(!targets || !sources || !sizes || !count || !attributes || !indices || !attribute_count, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(stream == NULL || stream == CU_STREAM_LEGACY, CUDA_ERROR_INVALID_HANDLE); /* as CUDA documents */
    for (size_t i = 0; i < count; i++) SIM_TRY(copy_later(AT(targets[i]), AT(sources[i]), sizes[i], stream));
    return CUDA_SUCCESS;
}
