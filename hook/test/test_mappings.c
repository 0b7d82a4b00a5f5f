/* Memory of cuMemCreate counts until its last handle and mapping are gone, whatever was at their addresses before. */
#include "check.h"

#include "fake_driver.h"
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

int main(void)
{
    gpu = fake_gpu(ORION_ROLE_BE);
    a_mapping_where_an_allocation_ended_with_its_context();
    puts("mappings: ok");
    return 0;
}
