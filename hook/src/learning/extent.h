/* How many bytes a call copies, sets or allocates, if no single parameter states this number: batches, boxes, arrays.
 * The numbers serve memory accounting and the identities by which the hook recognises work that takes about the same time
 * (identity.h). Approximations are good enough for both. Pointers may be NULL except in
 * the macros. */
#ifndef ORION_EXTENT_H
#define ORION_EXTENT_H

#include <cuda.h>
#include <stdbool.h>

#include "generated/driver.h"
#include "learning/identity.h"

static inline uint64_t orion_identity_copy(CUmemorytype from, CUmemorytype to, size_t bytes)
{
    enum orion_work_kind kind = from == CU_MEMORYTYPE_HOST ? ORION_WORK_COPY_IN
                                : to == CU_MEMORYTYPE_HOST ? ORION_WORK_COPY_OUT
                                                           : ORION_WORK_COPY_DEVICE;
    return orion_identity_bytes(kind, bytes);
}

/* These are macros, because the structures of older ABIs and of peer copies have the same members but other types. The
 * pointers must not be NULL. */
#define orion_copy_2d(copy) \
    orion_identity_copy((copy)->srcMemoryType, (copy)->dstMemoryType, (size_t)(copy)->WidthInBytes *(copy)->Height)
#define orion_copy_3d(copy) \
    orion_identity_copy((copy)->srcMemoryType, (copy)->dstMemoryType, (size_t)(copy)->WidthInBytes *(copy)->Height *(copy)->Depth)

/* Whether a blocking copy waits in the driver until its turn comes in the stream. The driver returns at once from copies
 * within the device, and from host memory if they are at most 64 KiB (CUDA C++ Programming Guide, Asynchronous Concurrent
 * Execution). Small copies from pinned memory block, too; they count as copies that do not. */
#define ORION_COPY_AT_ONCE 65536u
static inline bool orion_copy_in_blocks(size_t bytes) { return bytes > ORION_COPY_AT_ONCE; }
#define orion_copy_of_box_blocks(copy, depth) \
    ((copy)->srcMemoryType == CU_MEMORYTYPE_HOST && (copy)->dstMemoryType != CU_MEMORYTYPE_HOST && \
     (size_t)(copy)->WidthInBytes * (copy)->Height * (depth) > ORION_COPY_AT_ONCE)

/* Whether the driver waits for the end of a blocking copy. */
#define orion_copy_of_box_proves(copy, depth) \
    ((copy)->dstMemoryType == CU_MEMORYTYPE_HOST && (copy)->srcMemoryType != CU_MEMORYTYPE_HOST && \
     (size_t)(copy)->WidthInBytes * (copy)->Height * (depth) != 0)

static inline bool orion_is_on_device(CUdeviceptr address)
{
    CUmemorytype type = CU_MEMORYTYPE_HOST;
    return orion_driver.cuPointerGetAttribute != NULL &&
           orion_driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE;
}

/* For a copy whose direction only its addresses show. */
static inline bool orion_copy_blocks(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return bytes > ORION_COPY_AT_ONCE && !(orion_is_on_device(to) && orion_is_on_device(from));
}

#define orion_identity_memset_node(set) \
    orion_identity_bytes(ORION_WORK_MEMSET, (size_t)(set)->elementSize *(set)->width *(set)->height)

static inline size_t orion_sum(const size_t *sizes, size_t count)
{
    size_t sum = 0;
    for (size_t i = 0; sizes != NULL && i < count; i++) sum += sizes[i];
    return sum;
}

/* The sum is in elements, because only the arrays know their elements' size. Batches of the same shape have the same
 * sum, which is enough for identities. */
static inline size_t orion_bytes_of_boxes(const CUDA_MEMCPY3D_BATCH_OP *boxes, size_t count)
{
    size_t sum = 0;
    for (size_t i = 0; boxes != NULL && i < count; i++)
        sum += boxes[i].extent.width * boxes[i].extent.height * boxes[i].extent.depth;
    return sum;
}

static inline size_t orion_bytes_decompressed(const CUmemDecompressParams *parts, size_t count)
{
    size_t sum = 0;
    for (size_t i = 0; parts != NULL && i < count; i++) sum += parts[i].srcNumBytes;
    return sum;
}

/* The driver chooses the pitch; so far it aligns rows to 512 bytes. */
static inline uint64_t orion_bytes_of_rows(size_t width, size_t height) { return ((width + 511) & ~(size_t)511) * height; }

static inline uint64_t orion_bytes_of_element(CUarray_format format, unsigned channels)
{
    switch ((int)format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return channels * 4u;
    default: return channels * 2u; /* 16 bits; video and block-compressed formats have one to two bytes an element */
    }
}

static inline uint64_t orion_bytes_of_array_2d(const CUDA_ARRAY_DESCRIPTOR *array)
{
    if (array == NULL) return 0;
    return (uint64_t)array->Width * (array->Height ? array->Height : 1) * orion_bytes_of_element(array->Format, array->NumChannels);
}

/* Each level has a quarter of the bytes of the level before, so all further levels together have a third of the first
 * level's bytes. The memory of a sparse or deferred array is of cuMemCreate, which counts it. */
static inline uint64_t orion_bytes_of_array_3d(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels)
{
    if (array == NULL || array->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) return 0;
    uint64_t bytes = (uint64_t)array->Width * (array->Height ? array->Height : 1) * (array->Depth ? array->Depth : 1) *
                     orion_bytes_of_element(array->Format, array->NumChannels);
    return levels > 1 ? bytes + bytes / 3 : bytes;
}

#endif
