/* What counts of a pool, and of an allocation, after its end. */
#include "played_pool.h"

static void an_entry_of_a_created_pool_ends_with_it(void)
{
    CUdeviceptr at;
    const CUmemPoolProps there = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    orion_pool_made(CREATED, &there);
    CHECK(allocate(&at, 100 * MIB, CREATED) == CUDA_SUCCESS);
    CHECK(counted() == 128 * MIB);
    orion_pool_ending(CREATED);
    CHECK(counted() == 100 * MIB);
    release(at);
    CHECK(counted() == 0);
    held = taken = pending = 0;
}

/* By another thread, while the driver serves the call: from the pool that is the current one then. */
static void a_pool_may_end_and_another_one_begin_during_an_allocation(void)
{
    const CUmemPoolProps there = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    for (unsigned fails = 0; fails < 2; fails++) {
        CUdeviceptr at = 0;
        struct orion_pooling pooling = {.stream = {(CUstream)0x20, false}, .bytes = MIB};
        orion_pool_made(current = CREATED, &there);
        CHECK(may_begin(&pooling) && counted() == STEP);
        orion_pool_ending(CREATED);
        CHECK(counted() == 0);
        current = DEFAULT;
        orion_pool_made(CREATED, &there);
        CUresult result = fails ? CUDA_ERROR_OUT_OF_MEMORY : take(&at, MIB);
        CHECK(orion_pool_ended(&pooling, &at, result) == result);
        CHECK(counted() == held);
        if (!fails) release(at);
        give_back_what_is_free();
        CHECK(counted() == 0);
        orion_pool_ending(CREATED);
    }
}

/* The same after the driver's call. */
static void memory_of_a_pool_that_has_just_ended_counts_by_itself(void)
{
    CUdeviceptr at;
    const CUmemPoolProps there = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    struct orion_pooling pooling = {.pool = CREATED, .stream = {(CUstream)0x20, false}, .bytes = MIB};
    orion_pool_made(CREATED, &there);
    CHECK(may_begin(&pooling));
    CHECK(take(&at, MIB) == CUDA_SUCCESS && !orion_pool_end(&pooling, CUDA_SUCCESS));
    orion_pool_ending(CREATED);
    orion_pool_keep(&pooling, at);
    CHECK(counted() == MIB);
    release(at);
    CHECK(counted() == 0);
    held = taken = pending = 0;
}

/* As after an error that ends the context: no call of the driver succeeds any more. */
static void an_allocation_that_fails_leaves_nothing_if_the_driver_is_silent(void)
{
    CUdeviceptr at;
    CHECK(allocate(&at, MIB, NULL) == CUDA_SUCCESS);
    atomic_store(&silent, true);
    for (unsigned i = 0; i < 3; i++) {
        struct orion_pooling pooling = {.stream = {(CUstream)0x20, false}, .bytes = 2 * STEP};
        CHECK(may_begin(&pooling));
        CHECK(orion_pool_ended(&pooling, &at, CUDA_ERROR_ILLEGAL_ADDRESS) == CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK(counted() == STEP);
    }
    atomic_store(&silent, false);
}

/* The driver may have ended the pools with the context, so the hook must not ask about them. */
static void pools_do_not_count_after_the_end_of_the_primary_context(void)
{
    CUdeviceptr at;
    CHECK(allocate(&at, 100 * MIB, NULL) == CUDA_SUCCESS);
    orion_pools_ended_on(orion_the_process, 0);
    CHECK(counted() == 0);
    unsigned before = atomic_load(&asked);
    orion_pools_look(0);
    orion_pools_trim(0, MIB);
    CHECK(atomic_load(&asked) == before && counted() == 0);
    held = taken = pending = 0;
    CHECK(allocate(&at, MIB, NULL) == CUDA_SUCCESS);
    CHECK(counted() == STEP);
}

/* The hook sees no end of memory that ends with its context. */
static void an_address_that_the_driver_gives_again_counts_once(void)
{
    struct orion_wish wish;
    uint64_t before = counted();
    for (unsigned i = 0; i < 2; i++) {
        CHECK(orion_memory_reserve(0, STEP, ORION_MEMORY_RESIDENT, &wish) == ORION_RESERVED);
        orion_memory_reserved(0, STEP, ORION_MEMORY_RESIDENT, UINT64_C(0x7000000000), CUDA_SUCCESS);
    }
    CHECK(counted() == before + STEP);
    struct orion_release released = orion_memory_releasing(UINT64_C(0x7000000000));
    orion_memory_released(&released, CUDA_SUCCESS);
    CHECK(counted() == before);
}

int main(void)
{
    play_pool();
    an_entry_of_a_created_pool_ends_with_it();
    a_pool_may_end_and_another_one_begin_during_an_allocation();
    memory_of_a_pool_that_has_just_ended_counts_by_itself();
    an_allocation_that_fails_leaves_nothing_if_the_driver_is_silent();
    pools_do_not_count_after_the_end_of_the_primary_context();
    an_address_that_the_driver_gives_again_counts_once();
    puts("pool ends: ok");
    return 0;
}
