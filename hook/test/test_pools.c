/* What pools hold of the driver counts, whatever the driver decides: its pools grow in steps of 32 MiB, keep what is freed
 * until a synchronisation, and cannot use each free part for each allocation. test_pool_ends.c and test_pool_looks.c have the rest. */
#include "played_pool.h"

#include <unistd.h>

#define OF_HOST ((CUmemoryPool)0x30000)

static void a_pool_counts_with_what_it_holds(void)
{
    CUdeviceptr at;
    CHECK(allocate(&at, MIB, NULL) == CUDA_SUCCESS);
    CHECK(counted() == STEP);
    release(at);
    CHECK(counted() == STEP);
    give_back_what_is_free();
    CHECK(counted() == 0);
}

static void what_a_pool_may_be_about_to_take_is_not_said_to_be_taken(void)
{
    CUdeviceptr at[3];
    for (unsigned i = 0; i < 3; i++) {
        uint64_t before = counted();
        CHECK(allocate(&at[i], 2 * STEP, NULL) == CUDA_SUCCESS);
        CHECK(said_when_asked == before && said_to_be_taken() == counted() && counted() == before + 2 * STEP);
    }
    for (unsigned i = 0; i < 3; i++) release(at[i]);
    give_back_what_is_free();
}

static void pools_of_host_memory_and_foreign_pools_do_not_count(void)
{
    CUdeviceptr at;
    const CUmemPoolProps of_host = {.location = {.type = CU_MEM_LOCATION_TYPE_HOST}};
    orion_pool_made(OF_HOST, &of_host);
    CHECK(allocate(&at, 2 * LIMIT, OF_HOST) == CUDA_SUCCESS);
    CHECK(allocate(&at, 2 * LIMIT, (CUmemoryPool)0x40000) == CUDA_SUCCESS);
    CHECK(counted() == 0);
    held = taken = 0;
}

static void the_default_pool_of_a_device_without_a_context_counts(void)
{
    CUdeviceptr at;
    CHECK(allocate(&at, MIB, OF_SECOND) == CUDA_SUCCESS);
    CHECK(counted() == 0 && orion_memory(orion_the_process)->used[1] == STEP);
    release(at);
    synchronise();
    fake_trim(NULL, 0);
    orion_pools_look(1);
    CHECK(orion_memory(orion_the_process)->used[1] == 0);
}

static void what_waits_for_a_synchronisation_serves_the_next_allocation(void)
{
    CUdeviceptr at;
    for (unsigned i = 0; i < 10; i++) {
        CHECK(allocate(&at, 300 * MIB, NULL) == CUDA_SUCCESS);
        release(at);
        CHECK(counted() == 320 * MIB);
    }
    give_back_what_is_free();
}

/* Also if the pool could be trimmed: it would only grow again. */
static void an_allocation_that_the_pool_can_serve_trims_nothing(void)
{
    CUdeviceptr at;
    unsigned before = trims;
    for (unsigned i = 0; i < 10; i++) {
        CHECK(allocate(&at, 300 * MIB, NULL) == CUDA_SUCCESS);
        release(at);
        synchronise();
        CHECK(counted() == 320 * MIB && held == 320 * MIB);
    }
    CHECK(trims == before);
    fake_trim(NULL, 0);
    orion_pools_look(0);
}

static void what_a_pool_has_grown_by_is_kept_if_trimming_makes_room(void)
{
    CUdeviceptr at;
    CHECK(allocate(&at, 300 * MIB, NULL) == CUDA_SUCCESS);
    release(at);
    synchronise();
    fragmented = true;
    CHECK(allocate(&at, 290 * MIB, NULL) == CUDA_SUCCESS);
    fragmented = false;
    CHECK(counted() == held && held <= LIMIT);
    release(at);
    give_back_what_is_free();
    CHECK(counted() == 0);
}

static void a_pool_that_grows_without_credit_gives_it_back(void)
{
    CUdeviceptr one, two;
    CHECK(allocate(&one, 300 * MIB, NULL) == CUDA_SUCCESS);
    release(one);
    fragmented = true;
    CHECK(allocate(&two, 300 * MIB, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(two == 0 && taken == 0);
    fragmented = false;
    synchronise();
    CHECK(allocate(&one, 480 * MIB, NULL) == CUDA_SUCCESS); /* looks first, then trims */
    CHECK(counted() <= LIMIT && counted() >= held);
    release(one);
    give_back_what_is_free();
    CHECK(counted() == 0);
}

/* The second call takes what the first one has claimed, so the pool will grow for the first one. */
static CUdeviceptr take_what_was_claimed(struct orion_pooling *claiming)
{
    CUdeviceptr at, other;
    struct orion_pooling promised = {.stream = {(CUstream)0x20, false}, .bytes = 160 * MIB};
    *claiming = promised;
    claiming->bytes = 300 * MIB;
    CHECK(allocate(&at, 300 * MIB, NULL) == CUDA_SUCCESS);
    release(at);
    CHECK(may_begin(claiming) && claiming->claims);
    CHECK(may_begin(&promised) && !promised.claims);
    CHECK(orion_pool_ended(&promised, &other, take(&other, promised.bytes)) == CUDA_SUCCESS);
    CHECK(counted() == 480 * MIB);
    return other;
}

static void growth_that_was_reserved_for_one_call_may_serve_another_one(void)
{
    CUdeviceptr at;
    struct orion_pooling claiming;
    CUdeviceptr other = take_what_was_claimed(&claiming);
    CHECK(!orion_allocation_may_begin(0, 64 * MIB, ORION_MEMORY_RESIDENT));
    CHECK(orion_pool_ended(&claiming, &at, take(&at, claiming.bytes)) == CUDA_SUCCESS);
    CHECK(held == 480 * MIB && counted() == held);
    release(at);
    release(other);
    give_back_what_is_free();
    CHECK(counted() == 0);
}

static CUdeviceptr taken_meanwhile, freed_meanwhile;

static void take_and_free(void)
{
    CHECK(take(&taken_meanwhile, 300 * MIB) == CUDA_SUCCESS);
    release(freed_meanwhile);
}

/* The pool has grown for the first call, and has enough free again: what it held before is too low a count. */
static void what_grows_between_two_questions_counts(void)
{
    struct orion_pooling claiming;
    freed_meanwhile = take_what_was_claimed(&claiming);
    after_held = take_and_free;
    orion_pools_look(0);
    CHECK(after_held == NULL && held == 480 * MIB && counted() == held);
    CHECK(orion_pool_ended(&claiming, &taken_meanwhile, CUDA_SUCCESS) == CUDA_SUCCESS);
    release(taken_meanwhile);
    give_back_what_is_free();
    CHECK(counted() == 0);
}

static unsigned calls_of_tool;

/* As a tool with callbacks at the driver's calls: what it asks and allocates itself comes from within the hook's question. */
static void call_as_a_tool(void)
{
    CUdeviceptr at;
    const CUmemPoolProps there = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    size_t left = 0, total = 2 * LIMIT;
    calls_of_tool++;
    orion_memory_info(0, &left, &total);
    orion_pools_trim(0, MIB);
    orion_pools_graph_launched(0);
    orion_pool_made(CREATED, &there);
    CHECK(allocate(&at, MIB, NULL) == CUDA_SUCCESS);
    release(at);
    orion_pool_ending(CREATED);
}

static void a_call_of_the_program_within_a_call_of_the_driver_does_not_wait_for_its_own_thread(void)
{
    CUdeviceptr at;
    unsigned before = calls_of_tool;
    alarm(30);
    after_held = call_as_a_tool;
    CHECK(allocate(&at, MIB, NULL) == CUDA_SUCCESS);
    after_held = call_as_a_tool;
    orion_pools_poll(orion_the_process, 0);
    alarm(0);
    CHECK(calls_of_tool == before + 2);
    release(at);
    give_back_what_is_free();
    CHECK(counted() == 0);
}

int main(void)
{
    play_pool();
    a_pool_counts_with_what_it_holds();
    what_a_pool_may_be_about_to_take_is_not_said_to_be_taken();
    pools_of_host_memory_and_foreign_pools_do_not_count();
    the_default_pool_of_a_device_without_a_context_counts();
    what_waits_for_a_synchronisation_serves_the_next_allocation();
    an_allocation_that_the_pool_can_serve_trims_nothing();
    what_a_pool_has_grown_by_is_kept_if_trimming_makes_room();
    a_pool_that_grows_without_credit_gives_it_back();
    growth_that_was_reserved_for_one_call_may_serve_another_one();
    what_grows_between_two_questions_counts();
    a_call_of_the_program_within_a_call_of_the_driver_does_not_wait_for_its_own_thread();
    CHECK(trims > 0);
    puts("pools: ok");
    return 0;
}
