/* What pools hold of the driver counts, whatever the driver decides: its pools grow in steps of 32 MiB, keep what is freed
 * until a synchronisation, and cannot use each free part for each allocation. */
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/credit.h"
#include "fake_driver.h"
#include "memory/graph_memory.h"
#include "memory/memory.h"
#include "memory/pools.h"
#include "system/system.h"

#define MIB (UINT64_C(1) << 20)
#define STEP (32 * MIB)
#define LIMIT (512 * MIB)
#define THREADS 8u
#define ROUNDS 4000u
#define DEFAULT ((CUmemoryPool)0x10000)
#define CREATED ((CUmemoryPool)0x20000)
#define OF_HOST ((CUmemoryPool)0x30000)
#define OF_SECOND ((CUmemoryPool)0x50000) /* the default pool of a device without a context */

/* One pool, whose numbers the test reads and sets. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t held, taken, pending; /* pending: freed, but not given back before the next synchronisation */
static bool fragmented;               /* no allocation fits into the free part */
static unsigned trims, next_address;
static void (*after_held)(void); /* runs once, after the driver has said what it holds */
static uint64_t size_of[1u << 20];
static struct orion_gpu *gpu;
static _Atomic unsigned asked;
static _Atomic bool silent, without_descriptors;

static CUresult CUDAAPI fake_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    (void)pool;
    atomic_fetch_add(&asked, 1);
    if (fcntl(0, F_GETFD) < 0) atomic_store(&without_descriptors, true);
    if (atomic_load(&silent)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    pthread_mutex_lock(&mutex);
    bool asked_held = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
    void (*then)(void) = asked_held ? after_held : NULL;
    *(uint64_t *)value = asked_held ? held : taken;
    pthread_mutex_unlock(&mutex);
    if (then != NULL) after_held = NULL, then();
    return CUDA_SUCCESS;
}
static CUmemoryPool current = DEFAULT;

static CUresult CUDAAPI fake_current(CUmemoryPool *pool, CUdevice device)
{
    *pool = current;
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
static CUresult CUDAAPI fake_default(CUmemoryPool *pool, CUdevice device)
{
    *pool = device == 0 ? DEFAULT : OF_SECOND;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_count(int *devices)
{
    *devices = 2;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_trim(CUmemoryPool pool, size_t keep)
{
    (void)pool;
    pthread_mutex_lock(&mutex);
    trims++;
    uint64_t least = (taken + pending + STEP - 1) / STEP * STEP;
    if (least < keep) least = keep;
    if (held > least) held = least;
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}
static CUresult take(CUdeviceptr *at, uint64_t bytes)
{
    pthread_mutex_lock(&mutex);
    uint64_t left = fragmented ? 0 : held - taken;
    if (bytes > left) held += (bytes - left + STEP - 1) / STEP * STEP;
    taken += bytes;
    if (pending > held - taken) pending = held - taken;
    *at = ++next_address * UINT64_C(512);
    size_of[next_address] = bytes;
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI fake_free(CUdeviceptr at, CUstream stream)
{
    (void)stream;
    pthread_mutex_lock(&mutex);
    taken -= size_of[at / 512];
    pending += size_of[at / 512];
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}
static void synchronise(void)
{
    pthread_mutex_lock(&mutex);
    pending = 0;
    pthread_mutex_unlock(&mutex);
}

/* As the wrappers of cuMemAllocFromPoolAsync and cuMemFreeAsync. */
static CUresult allocate(CUdeviceptr *at, uint64_t bytes, CUmemoryPool pool)
{
    struct orion_pooling pooling = {.pool = pool, .stream = {(CUstream)0x20, false}, .bytes = bytes};
    if (!orion_pool_may_begin(&pooling)) return CUDA_ERROR_OUT_OF_MEMORY;
    return orion_pool_ended(&pooling, at, take(at, bytes));
}
static void release(CUdeviceptr at)
{
    struct orion_release released = orion_memory_releasing(at);
    orion_memory_released(&released, fake_free(at, NULL));
}

static uint64_t counted(void) { return atomic_load(&gpu->record->memory_bytes); }

static void give_back_what_is_free(void)
{
    synchronise();
    fake_trim(NULL, 0);
    orion_pools_look(0);
}

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
    CHECK(orion_pool_may_begin(claiming) && claiming->claims);
    CHECK(orion_pool_may_begin(&promised) && !promised.claims);
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
        CHECK(orion_pool_may_begin(&pooling) && counted() == STEP);
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
    CHECK(orion_pool_may_begin(&pooling));
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
        CHECK(orion_pool_may_begin(&pooling));
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

/* Without a call of the program, and in a thread that has the program's descriptors: the driver may need its own. */
static void a_thread_looks_at_pools_under_a_limit(void)
{
    synchronise();
    pthread_mutex_lock(&mutex);
    held = taken = 0;
    pthread_mutex_unlock(&mutex);
    for (unsigned i = 0; counted() != 0 && i < 1000; i++) orion_sleep_precisely(10 * ORION_MILLISECOND);
    CHECK(counted() == 0 && !atomic_load(&without_descriptors));
}

static void without_a_limit_nobody_looks(void)
{
    CUdeviceptr at;
    struct orion_grant_page *page = (struct orion_grant_page *)(uintptr_t)gpu->grant;
    uint32_t next = (atomic_load(&page->current) + 1) & 1;
    page->copy[next].memory_limit_bytes = 0;
    atomic_store(&page->current, next);
    CHECK(allocate(&at, MIB, NULL) == CUDA_SUCCESS);
    orion_sleep_precisely(300 * ORION_MILLISECOND); /* the thread may have begun a look */
    unsigned before = atomic_load(&asked);
    orion_sleep_precisely(600 * ORION_MILLISECOND);
    CHECK(atomic_load(&asked) == before);
}

static _Atomic unsigned done;
static _Atomic uint64_t most;

/* By each thread, because on a busy machine the main thread may not run before the others have ended. */
static void check_count(void)
{
    uint64_t now = counted(), before = atomic_load(&most);
    CHECK(now <= LIMIT);
    while (now > before && !atomic_compare_exchange_weak(&most, &before, now)) {}
}

static void *churn(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    CUdeviceptr kept[8] = {0};
    for (unsigned i = 0; i < ROUNDS; i++) {
        CUdeviceptr *one = &kept[(unsigned)rand_r(&seed) % 8];
        if (*one != 0) release(*one), *one = 0;
        else if (allocate(one, (1 + (unsigned)rand_r(&seed) % 64) * MIB, NULL) != CUDA_SUCCESS) *one = 0;
        check_count();
        if (rand_r(&seed) % 16 == 0) synchronise();
    }
    for (unsigned i = 0; i < 8; i++)
        if (kept[i] != 0) release(kept[i]);
    atomic_fetch_add(&done, 1);
    return NULL;
}

static void threads_never_make_the_count_too_high_or_too_low(void)
{
    pthread_t thread[THREADS];
    for (unsigned i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, churn, (void *)(uintptr_t)(i + 1));
    while (atomic_load(&done) < THREADS) {
        orion_pools_poll(orion_the_process, 0);
        check_count();
        pthread_mutex_lock(&mutex);
        CHECK(held <= LIMIT);
        pthread_mutex_unlock(&mutex);
    }
    for (unsigned i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    CHECK(atomic_load(&most) > LIMIT / 2);
    orion_pools_look(0);
    CHECK(counted() == held);
    give_back_what_is_free();
    CHECK(counted() == 0);
}

int main(void)
{
    gpu = fake_gpu(ORION_ROLE_BE);
    orion_driver.cuMemPoolGetAttribute = fake_attribute;
    orion_driver.cuDeviceGetDefaultMemPool = fake_default;
    orion_driver.cuDeviceGetCount = fake_count;
    orion_driver.cuDeviceGetMemPool = fake_current;
    orion_driver.cuMemPoolTrimTo = fake_trim;
    orion_driver.cuMemFreeAsync = fake_free;
    struct orion_grant *grant = ((struct orion_grant_page *)(uintptr_t)gpu->grant)->copy;
    grant[0].memory_limit_bytes = grant[1].memory_limit_bytes = LIMIT;
    a_pool_counts_with_what_it_holds();
    pools_of_host_memory_and_foreign_pools_do_not_count();
    the_default_pool_of_a_device_without_a_context_counts();
    what_waits_for_a_synchronisation_serves_the_next_allocation();
    an_allocation_that_the_pool_can_serve_trims_nothing();
    what_a_pool_has_grown_by_is_kept_if_trimming_makes_room();
    a_pool_that_grows_without_credit_gives_it_back();
    growth_that_was_reserved_for_one_call_may_serve_another_one();
    what_grows_between_two_questions_counts();
    a_call_of_the_program_within_a_call_of_the_driver_does_not_wait_for_its_own_thread();
    an_entry_of_a_created_pool_ends_with_it();
    a_pool_may_end_and_another_one_begin_during_an_allocation();
    memory_of_a_pool_that_has_just_ended_counts_by_itself();
    an_allocation_that_fails_leaves_nothing_if_the_driver_is_silent();
    pools_do_not_count_after_the_end_of_the_primary_context();
    an_address_that_the_driver_gives_again_counts_once();
    a_thread_looks_at_pools_under_a_limit();
    threads_never_make_the_count_too_high_or_too_low();
    without_a_limit_nobody_looks();
    CHECK(trims > 0);
    puts("pools: ok");
    return 0;
}
