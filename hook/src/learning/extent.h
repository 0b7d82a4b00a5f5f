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
#include "process/process.h"

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
/* Whether a blocking copy goes from the host's memory to the device. */
#define orion_copy_of_box_settles(copy) ((copy)->srcMemoryType == CU_MEMORYTYPE_HOST && (copy)->dstMemoryType != CU_MEMORYTYPE_HOST)

#define orion_copy_of_box_blocks(copy, depth) \
    (orion_copy_of_box_settles(copy) && (size_t)(copy)->WidthInBytes * (copy)->Height * (depth) > ORION_COPY_AT_ONCE)

/* Whether the driver waits for the end of a blocking copy. */
#define orion_copy_of_box_proves(copy, depth) \
    ((copy)->dstMemoryType == CU_MEMORYTYPE_HOST && (copy)->srcMemoryType != CU_MEMORYTYPE_HOST && \
     (size_t)(copy)->WidthInBytes * (copy)->Height * (depth) != 0)

/* cuPointerGetAttribute fails for memory that the driver does not know; this function succeeds, and leaves 0. */
static inline bool orion_is_on_device(CUdeviceptr address)
{
    CUmemorytype type = CU_MEMORYTYPE_HOST;
    CUpointer_attribute asked = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void *into = &type;
    return orion_driver.cuPointerGetAttributes != NULL &&
           orion_driver.cuPointerGetAttributes(1, &asked, &into, address) == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE;
}

/* For a copy whose direction only its addresses show. */
static inline bool orion_copy_blocks(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return bytes > ORION_COPY_AT_ONCE && !(orion_is_on_device(to) && orion_is_on_device(from));
}

#define orion_identity_memset_node(set) \
    orion_identity_bytes(ORION_WORK_MEMSET, (size_t)(set)->elementSize *(set)->width *(set)->height)

/* How many entries of a batch to read: the driver has not checked `count` yet, and refuses many wrong ones without reading the
 * arrays. So this is at most 32 KiB of each array; beyond that, the first entries stand for all (orion_of_all). Nobody needs the
 * sum in an unmanaged process. */
static inline size_t orion_entries_read(const void *entries, size_t count, size_t size)
{
    if (entries == NULL || orion_process_if_managed() == NULL) return 0;
    return count < 32768 / size ? count : 32768 / size;
}
static inline size_t orion_of_all(size_t sum, size_t read, size_t count)
{
    return read < count && read > 0 ? sum / read * count : sum;
}

static inline size_t orion_sum(const size_t *sizes, size_t count)
{
    size_t sum = 0, read = orion_entries_read(sizes, count, sizeof *sizes);
    for (size_t i = 0; i < read; i++) sum += sizes[i];
    return orion_of_all(sum, read, count);
}

/* The sum is in elements, because only the arrays know their elements' size. Batches of the same shape have the same
 * sum, which is enough for identities. */
static inline size_t orion_bytes_of_boxes(const CUDA_MEMCPY3D_BATCH_OP *boxes, size_t count)
{
    size_t sum = 0, read = orion_entries_read(boxes, count, sizeof *boxes);
    for (size_t i = 0; i < read; i++) sum += boxes[i].extent.width * boxes[i].extent.height * boxes[i].extent.depth;
    return orion_of_all(sum, read, count);
}

static inline size_t orion_bytes_decompressed(const CUmemDecompressParams *parts, size_t count)
{
    size_t sum = 0, read = orion_entries_read(parts, count, sizeof *parts);
    for (size_t i = 0; i < read; i++) sum += parts[i].srcNumBytes;
    return orion_of_all(sum, read, count);
}

/* The driver chooses the pitch; so far it aligns rows to 512 bytes. */
static inline uint64_t orion_bytes_of_rows(size_t width, size_t height) { return ((width + 511) & ~(size_t)511) * height; }

/* Formats that cuda.h gives a number of channels, but whose bytes do not follow from it: a block of side * side elements has
 * these bytes. By number, because older versions of cuda.h do not name all of them. */
struct orion_block { uint8_t side, bytes; };
static inline struct orion_block orion_block_of(unsigned format, unsigned channels)
{
    static const struct orion_block blocks[256] = {
        [0x50] = {1, 4},                                                        /* UNORM_INT_101010_2 */
        [0x51] = {2, 8},  [0x52] = {1, 4},                                      /* UINT8_PACKED_422, 444 */
        [0x53] = {2, 6},  [0x54] = {2, 12}, [0x59] = {2, 6},  [0x5a] = {2, 12}, /* 4:2:0, 8 and 16 bits */
        [0x55] = {2, 8},  [0x56] = {2, 16}, [0x5b] = {2, 8},  [0x5c] = {2, 16}, /* 4:2:2 */
        [0x57] = {1, 3},  [0x58] = {1, 6},  [0x5d] = {1, 3},  [0x5e] = {1, 6},  /* 4:4:4 */
        [0x91] = {4, 8},  [0x92] = {4, 8},  [0x97] = {4, 8},  [0x98] = {4, 8},  /* BC1, BC4 */
        [0x93] = {4, 16}, [0x94] = {4, 16}, [0x95] = {4, 16}, [0x96] = {4, 16}, /* BC2, BC3 */
        [0x99] = {4, 16}, [0x9a] = {4, 16}, [0x9b] = {4, 16}, [0x9c] = {4, 16}, /* BC5, BC6H */
        [0x9d] = {4, 16}, [0x9e] = {4, 16},                                     /* BC7 */
        [0xb0] = {2, 6},  [0x9f] = {2, 12}, [0xa1] = {2, 12},                   /* NV12, P010, P016 */
        [0xa2] = {2, 8},  [0xa3] = {2, 16}, [0xa4] = {2, 16},                   /* NV16, P210, P216 */
        [0xa5] = {2, 8},  [0xa6] = {2, 16}, [0xa7] = {2, 16},                   /* YUY2, Y210, Y216 */
        [0xa8] = {1, 4},  [0xa9] = {1, 4},  [0xb1] = {1, 8},                    /* AYUV, Y410, Y416 */
        [0xb2] = {1, 3},  [0xb3] = {1, 6},  [0xb4] = {1, 3},  [0xb5] = {1, 6},  /* Y444 of 8, 10, 8 and 16 bits */
        [0xc0] = {1, 1},  [0xc1] = {1, 2},  [0xc2] = {1, 4},                    /* UNORM_INT8X1, X2, X4 */
        [0xc3] = {1, 2},  [0xc4] = {1, 4},  [0xc5] = {1, 8},                    /* UNORM_INT16X1, X2, X4 */
        [0xc6] = {1, 1},  [0xc7] = {1, 2},  [0xc8] = {1, 4},                    /* SNORM_INT8X1, X2, X4 */
        [0xc9] = {1, 2},  [0xca] = {1, 4},  [0xcb] = {1, 8},                    /* SNORM_INT16X1, X2, X4 */
    };
    if (format < 256 && blocks[format].side != 0) return blocks[format];
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return (struct orion_block){1, (uint8_t)channels};
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return (struct orion_block){1, (uint8_t)(channels * 4u)};
    default: return (struct orion_block){1, (uint8_t)(channels * 2u)};
    }
}

static inline uint64_t orion_bytes_of_layer(CUarray_format format, unsigned channels, size_t width, size_t height)
{
    struct orion_block block = orion_block_of((unsigned)format, channels);
    uint64_t rows = height ? height : 1;
    return ((uint64_t)width + block.side - 1) / block.side * ((rows + block.side - 1) / block.side) * block.bytes;
}

static inline uint64_t orion_bytes_of_array_2d(const CUDA_ARRAY_DESCRIPTOR *array)
{
    if (array == NULL) return 0;
    return orion_bytes_of_layer(array->Format, array->NumChannels, array->Width, array->Height);
}

/* Each level has a quarter of the bytes of the level before, so all further levels together have a third of the first
 * level's bytes. The memory of a sparse or deferred array is of cuMemCreate, which counts it. */
static inline uint64_t orion_bytes_of_array_3d(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels)
{
    if (array == NULL || array->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) return 0;
    uint64_t bytes =
        orion_bytes_of_layer(array->Format, array->NumChannels, array->Width, array->Height) * (array->Depth ? array->Depth : 1);
    return levels > 1 ? bytes + bytes / 3 : bytes;
}

#endif
