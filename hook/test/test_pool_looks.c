/* Under a limit a thread looks at the pools, and allocations of several threads count rightly meanwhile. */
#include "played_pool.h"

#include <stdlib.h>

#define THREADS 8u
#define ROUNDS 4000u

/* Without a call of the program, and in a thread that has the program's descriptors: the driver may need its own. */
static void a_thread_looks_at_pools_under_a_limit(void)
{
    CUdeviceptr at;
    CHECK(allocate(&at, MIB, NULL) == CUDA_SUCCESS && counted() == STEP);
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
    play_pool();
    a_thread_looks_at_pools_under_a_limit();
    threads_never_make_the_count_too_high_or_too_low();
    without_a_limit_nobody_looks();
    CHECK(trims > 0);
    puts("pool looks: ok");
    return 0;
}
