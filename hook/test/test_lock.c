/* Who waits for a lock sleeps: its holder may need the CPU of the thread that waits. */
#include "check.h"

#include <pthread.h>
#include <time.h>

#include "system/lock.h"
#include "system/system.h"

#define HELD_NS (200 * ORION_MILLISECOND)
#define THREADS 4u
#define ROUNDS 20000u

static _Atomic uint32_t lock;
static unsigned guarded;

static uint64_t cpu_time(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * ORION_SECOND + (uint64_t)time.tv_nsec;
}

static void *wait_for_it(void *spent)
{
    uint64_t before = cpu_time();
    orion_lock(&lock);
    *(uint64_t *)spent = cpu_time() - before;
    orion_unlock(&lock);
    return NULL;
}

static void a_thread_that_waits_needs_no_cpu(void)
{
    pthread_t thread;
    uint64_t spent = UINT64_MAX;
    orion_lock(&lock);
    CHECK(!orion_lock_try(&lock));
    pthread_create(&thread, NULL, wait_for_it, &spent);
    orion_sleep_precisely(HELD_NS);
    orion_unlock(&lock);
    pthread_join(thread, NULL);
    CHECK(spent < HELD_NS / 4);
}

static void *count(void *none)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        orion_lock(&lock);
        guarded++;
        orion_unlock(&lock);
    }
    return none;
}

static void one_thread_at_a_time_holds_it(void)
{
    pthread_t thread[THREADS];
    for (unsigned i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, count, NULL);
    for (unsigned i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    CHECK(guarded == THREADS * ROUNDS && orion_lock_try(&lock));
    orion_unlock(&lock);
}

int main(void)
{
    a_thread_that_waits_needs_no_cpu();
    one_thread_at_a_time_holds_it();
    puts("lock: ok");
    return 0;
}
