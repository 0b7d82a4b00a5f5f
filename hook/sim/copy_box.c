/* Copies in two and three dimensions, over linear memory. Arrays (textures) are not modelled. */
#include <string.h>

#include "allocation.h"
#include "capture.h"
#include "copy.h"

/* The source or the target of a copied box. */
struct side {
    char *start;
    size_t pitch, height;
};

static CUresult side_of(CUmemorytype type, CUdeviceptr device, const void *host, size_t pitch, size_t height, const size_t at[4],
                        struct side *side)
{
    SIM_REFUSE(type == CU_MEMORYTYPE_ARRAY, CUDA_ERROR_NOT_SUPPORTED);
    SIM_REFUSE(type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED,
               CUDA_ERROR_INVALID_VALUE);
    char *start = type == CU_MEMORYTYPE_HOST ? (char *)(uintptr_t)host : (char *)(uintptr_t)device;
    SIM_REFUSE(!start, CUDA_ERROR_INVALID_VALUE);
    *side = (struct side){start + at[0] + at[1] * pitch + at[2] * pitch * height, pitch, height};
    return CUDA_SUCCESS;
}

static CUresult sides(const CUDA_MEMCPY3D *box, struct side *source, struct side *target)
{
    size_t from[4] = {box->srcXInBytes, box->srcY, box->srcZ}, to[4] = {box->dstXInBytes, box->dstY, box->dstZ};
    size_t source_pitch = box->srcPitch ? box->srcPitch : box->WidthInBytes;
    size_t target_pitch = box->dstPitch ? box->dstPitch : box->WidthInBytes;
    SIM_REFUSE(source_pitch < box->WidthInBytes || target_pitch < box->WidthInBytes, CUDA_ERROR_INVALID_VALUE);
    SIM_TRY(side_of(box->srcMemoryType, box->srcDevice, box->srcHost, source_pitch, box->srcHeight ? box->srcHeight : box->Height,
                    from, source));
    return side_of(box->dstMemoryType, box->dstDevice, box->dstHost, target_pitch, box->dstHeight ? box->dstHeight : box->Height,
                   to, target);
}

/* The bytes of the box must lie in one allocation if the box begins in one. */
static bool inside(const struct side *side, const CUDA_MEMCPY3D *box)
{
    struct sim_allocation found;
    size_t span = ((box->Depth - 1) * side->height + box->Height - 1) * side->pitch + box->WidthInBytes;
    return !sim_allocation_find((uintptr_t)side->start, &found) || span <= found.size - ((uintptr_t)side->start - found.start);
}

static CUresult check(const CUDA_MEMCPY3D *box, struct side *source, struct side *target)
{
    SIM_TRY(sides(box, source, target));
    return inside(source, box) && inside(target, box) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_box_move(const CUDA_MEMCPY3D *box)
{
    struct side source, target;
    SIM_TRY(check(box, &source, &target));
    for (size_t z = 0; z < box->Depth; z++)
        for (size_t y = 0; y < box->Height; y++)
            memmove(target.start + (z * target.height + y) * target.pitch, source.start + (z * source.height + y) * source.pitch,
                    box->WidthInBytes);
    return CUDA_SUCCESS;
}

enum sim_engine sim_box_engine(const CUDA_MEMCPY3D *box)
{
    struct side source, target;
    return sides(box, &source, &target) ? SIM_DEVICE_TO_DEVICE : sim_engine_for(target.start, source.start);
}

CUresult sim_copy_box(struct CUstream_st *stream, const CUDA_MEMCPY3D *box)
{
    struct side source, target;
    if (!box->WidthInBytes || !box->Height || !box->Depth) return CUDA_SUCCESS;
    SIM_TRY(check(box, &source, &target));
    SIM_TRY(sim_capture_touches(stream));
    if (stream->capture) return sim_capture_box(stream, box);
    SIM_TRY(sim_box_move(box));
    return sim_submit_copy(stream, sim_box_engine(box), box->WidthInBytes * box->Height * box->Depth);
}

static CUresult later(const CUDA_MEMCPY3D *box, CUstream handle)
{
    SIM_STREAM(stream, handle);
    return sim_copy_box(stream, box);
}

static CUresult now(const CUDA_MEMCPY3D *box)
{
    SIM_STREAM(stream, NULL);
    SIM_TRY(sim_capture_unsafe());
    SIM_TRY(sim_copy_box(stream, box));
    return sim_stream_wait(stream);
}

static CUDA_MEMCPY3D flat(const CUDA_MEMCPY2D *copy)
{
    CUDA_MEMCPY3D box;
    memset(&box, 0, sizeof box);
    box.srcXInBytes = copy->srcXInBytes, box.srcY = copy->srcY, box.srcMemoryType = copy->srcMemoryType;
    box.srcHost = copy->srcHost, box.srcDevice = copy->srcDevice, box.srcPitch = copy->srcPitch;
    box.dstXInBytes = copy->dstXInBytes, box.dstY = copy->dstY, box.dstMemoryType = copy->dstMemoryType;
    box.dstHost = copy->dstHost, box.dstDevice = copy->dstDevice, box.dstPitch = copy->dstPitch;
    box.WidthInBytes = copy->WidthInBytes, box.Height = copy->Height, box.Depth = 1;
    return box;
}

static CUDA_MEMCPY3D without_peers(const CUDA_MEMCPY3D_PEER *copy)
{
    CUDA_MEMCPY3D box;
    memset(&box, 0, sizeof box);
    box.srcXInBytes = copy->srcXInBytes, box.srcY = copy->srcY, box.srcZ = copy->srcZ;
    box.srcMemoryType = copy->srcMemoryType, box.srcHost = copy->srcHost, box.srcDevice = copy->srcDevice;
    box.srcPitch = copy->srcPitch, box.srcHeight = copy->srcHeight;
    box.dstXInBytes = copy->dstXInBytes, box.dstY = copy->dstY, box.dstZ = copy->dstZ;
    box.dstMemoryType = copy->dstMemoryType, box.dstHost = copy->dstHost, box.dstDevice = copy->dstDevice;
    box.dstPitch = copy->dstPitch, box.dstHeight = copy->dstHeight;
    box.WidthInBytes = copy->WidthInBytes, box.Height = copy->Height, box.Depth = copy->Depth;
    return box;
}

CUresult CUDAAPI cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy)
{
    SIM_REFUSE(!copy, CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY3D box = flat(copy);
    return now(&box);
}

CUresult CUDAAPI cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy) { return cuMemcpy2D_v2(copy); }

CUresult CUDAAPI cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    SIM_REFUSE(!copy, CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY3D box = flat(copy);
    return later(&box, stream);
}

CUresult CUDAAPI cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy) { return copy ? now(copy) : CUDA_ERROR_INVALID_VALUE; }

CUresult CUDAAPI cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    return copy ? later(copy, stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *copy)
{
    SIM_REFUSE(!copy, CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY3D box = without_peers(copy);
    return now(&box);
}

CUresult CUDAAPI cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *copy, CUstream stream)
{
    SIM_REFUSE(!copy, CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY3D box = without_peers(copy);
    return later(&box, stream);
}
