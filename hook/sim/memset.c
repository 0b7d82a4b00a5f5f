/* Memsets of one row, or of several rows with a pitch. Elements have 1, 2 or 4 bytes. As with copies, the bytes are set
 * at once and the time passes in the stream. As on a GPU, the caller of a synchronous memset does not wait for it. */
#include <string.h>

#include "allocation.h"
#include "capture.h"
#include "copy.h"

static CUresult check(const CUDA_MEMSET_NODE_PARAMS *set)
{
    struct sim_allocation found;
    SIM_REFUSE(set->elementSize != 1 && set->elementSize != 2 && set->elementSize != 4, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(set->dst % set->elementSize, CUDA_ERROR_INVALID_VALUE);
    size_t row = set->width * set->elementSize, span = (set->height - 1) * set->pitch + row;
    SIM_REFUSE(set->height > 1 && set->pitch < row, CUDA_ERROR_INVALID_VALUE);
    SIM_REFUSE(!sim_allocation_find(set->dst, &found) || span > found.size - (set->dst - found.start), CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

void sim_memset_move(const CUDA_MEMSET_NODE_PARAMS *set)
{
    for (size_t row = 0; row < set->height; row++) {
        char *start = (char *)(uintptr_t)set->dst + row * set->pitch;
        if (set->elementSize == 1) memset(start, (int)set->value, set->width);
        for (size_t i = 0; set->elementSize > 1 && i < set->width; i++)
            memcpy(start + i * set->elementSize, &set->value, set->elementSize);
    }
}

CUresult sim_memset(struct CUstream_st *stream, const CUDA_MEMSET_NODE_PARAMS *set)
{
    if (!set->width || !set->height) return CUDA_SUCCESS;
    SIM_TRY(check(set));
    SIM_TRY(sim_capture_touches(stream));
    if (stream->capture) return sim_capture_memset(stream, set);
    sim_memset_move(set);
    return sim_submit_memset(stream, set->dst, set->width * set->height * set->elementSize);
}

static CUresult later(CUstream handle, CUdeviceptr target, size_t pitch, unsigned value, unsigned element, size_t width,
                      size_t height)
{
    CUDA_MEMSET_NODE_PARAMS set = {target, pitch, value, element, width, height};
    SIM_STREAM(stream, handle);
    return sim_memset(stream, &set);
}

static CUresult now(CUdeviceptr target, size_t pitch, unsigned value, unsigned element, size_t width, size_t height)
{
    SIM_READY();
    SIM_TRY(sim_capture_unsafe());
    return later(NULL, target, pitch, value, element, width, height);
}

CUresult CUDAAPI cuMemsetD8_v2(CUdeviceptr at, unsigned char value, size_t n) { return now(at, 0, value, 1, n, 1); }
CUresult CUDAAPI cuMemsetD16_v2(CUdeviceptr at, unsigned short value, size_t n) { return now(at, 0, value, 2, n, 1); }
CUresult CUDAAPI cuMemsetD32_v2(CUdeviceptr at, unsigned value, size_t n) { return now(at, 0, value, 4, n, 1); }

CUresult CUDAAPI cuMemsetD2D8_v2(CUdeviceptr at, size_t pitch, unsigned char value, size_t width, size_t height)
{
    return now(at, pitch, value, 1, width, height);
}
CUresult CUDAAPI cuMemsetD2D16_v2(CUdeviceptr at, size_t pitch, unsigned short value, size_t width, size_t height)
{
    return now(at, pitch, value, 2, width, height);
}
CUresult CUDAAPI cuMemsetD2D32_v2(CUdeviceptr at, size_t pitch, unsigned value, size_t width, size_t height)
{
    return now(at, pitch, value, 4, width, height);
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t n, CUstream stream)
{
    return later(stream, at, 0, value, 1, n, 1);
}
CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr at, unsigned short value, size_t n, CUstream stream)
{
    return later(stream, at, 0, value, 2, n, 1);
}
CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr at, unsigned value, size_t n, CUstream stream)
{
    return later(stream, at, 0, value, 4, n, 1);
}

CUresult CUDAAPI cuMemsetD2D8Async(CUdeviceptr at, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream)
{
    return later(stream, at, pitch, value, 1, width, height);
}
CUresult CUDAAPI cuMemsetD2D16Async(CUdeviceptr at, size_t pitch, unsigned short value, size_t width, size_t height,
                                    CUstream stream)
{
    return later(stream, at, pitch, value, 2, width, height);
}
CUresult CUDAAPI cuMemsetD2D32Async(CUdeviceptr at, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream)
{
    return later(stream, at, pitch, value, 4, width, height);
}
