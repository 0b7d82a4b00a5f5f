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

int main(void)
{
    gpu = fake_gpu(ORION_ROLE_BE);
    a_mapping_where_an_allocation_ended_with_its_context();
    an_array_without_memory_of_its_own();
    puts("mappings: ok");
    return 0;
}
