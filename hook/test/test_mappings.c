/* Memory of cuMemCreate counts until its last handle and mapping are gone, whatever was at their addresses before. An array
 * into which such memory is mapped counts nothing itself. */
#include "check.h"

#include "fake_driver.h"
#include "learning/extent.h"
#include "memory/memory.h"

#define MIB (UINT64_C(1) << 20)
#define ADDRESS ((CUdeviceptr)0x7f0000000000)
#define HANDLE UINT64_C(0x5000)

static struct orion_gpu *gpu;

static uint64_t counted(void) { return atomic_load(&gpu->record->memory_bytes); }

static void allocate(uint64_t key, uint64_t bytes)
{
    struct orion_wish unused;
    CHECK(orion_memory_reserve(0, bytes, ORION_MEMORY_RESIDENT, &unused) == ORION_RESERVED);
    orion_memory_reserved(0, bytes, ORION_MEMORY_RESIDENT, key, CUDA_SUCCESS);
}

static void release(uint64_t key)
{
    struct orion_release released = orion_memory_releasing(key);
    orion_memory_released(&released, CUDA_SUCCESS);
}

/* The entry of the first allocation outlives the reset of its context, which the hook does not see. */
static void a_mapping_where_an_allocation_ended_with_its_context(void)
{
    allocate(ADDRESS, 4 * MIB);
    allocate(HANDLE, 6 * MIB);
    orion_memory_mapped(ADDRESS, 6 * MIB, HANDLE, CUDA_SUCCESS);
    CHECK(counted() == 6 * MIB);
    orion_memory_unmapped(ADDRESS, 6 * MIB, CUDA_SUCCESS);
    CHECK(counted() == 6 * MIB);
    release(HANDLE);
    CHECK(counted() == 0);
}

static void an_array_without_memory_of_its_own(void)
{
    CUDA_ARRAY3D_DESCRIPTOR array = {.Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CHECK(orion_bytes_of_array_3d(&array, 1) == MIB);
    array.Flags = CUDA_ARRAY3D_SPARSE;
    CHECK(orion_bytes_of_array_3d(&array, 1) == 0 && orion_bytes_of_array_3d(&array, 8) == 0);
    array.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_LAYERED;
    CHECK(orion_bytes_of_array_3d(&array, 1) == 0);
}

static uint64_t bytes_of(unsigned format, unsigned channels, size_t width, size_t height)
{
    CUDA_ARRAY_DESCRIPTOR flat = {width, height, (CUarray_format)format, channels};
    CUDA_ARRAY3D_DESCRIPTOR deep = {width, height, 1, (CUarray_format)format, channels, 0};
    CHECK(orion_bytes_of_array_2d(&flat) == orion_bytes_of_array_3d(&deep, 1));
    return orion_bytes_of_array_2d(&flat);
}

/* Compressed blocks and video have fewer bytes than their channels. */
static void arrays_of_every_kind_of_format(void)
{
    CHECK(bytes_of(CU_AD_FORMAT_FLOAT, 4, 16, 0) == 256 && bytes_of(CU_AD_FORMAT_HALF, 2, 8, 8) == 256);
    CHECK(bytes_of(CU_AD_FORMAT_BC1_UNORM, 4, 1024, 1024) == MIB / 2);
    CHECK(bytes_of(CU_AD_FORMAT_BC4_SNORM, 1, 1024, 1024) == MIB / 2);
    CHECK(bytes_of(CU_AD_FORMAT_BC6H_SF16, 3, 1024, 1024) == MIB);
    CHECK(bytes_of(CU_AD_FORMAT_BC7_UNORM, 4, 1024, 1024) == MIB);
    CHECK(bytes_of(CU_AD_FORMAT_BC7_UNORM, 4, 5, 1) == 32); /* two blocks */
    CHECK(bytes_of(CU_AD_FORMAT_NV12, 3, 1024, 1024) == MIB * 3 / 2);
    CHECK(bytes_of(CU_AD_FORMAT_P010, 3, 1024, 1024) == MIB * 3);
    CHECK(bytes_of(CU_AD_FORMAT_NV12, 3, 3, 3) == 24); /* four blocks of 2 * 2 */
    CHECK(bytes_of(CU_AD_FORMAT_UNORM_INT8X4, 4, 1024, 1024) == 4 * MIB);
    CHECK(bytes_of(CU_AD_FORMAT_SNORM_INT16X4, 4, 1024, 1024) == 8 * MIB);
}

int main(void)
{
    gpu = fake_gpu(ORION_ROLE_BE);
    a_mapping_where_an_allocation_ended_with_its_context();
    an_array_without_memory_of_its_own();
    arrays_of_every_kind_of_format();
    puts("mappings: ok");
    return 0;
}
