/* A program launches behind work that ends only after a later launch, as behind a stream's wait for a word that a kernel writes. While
 * the valve's watcher is late, the hook waits for the second without progress once, as it does while the watcher is on time. */
#include "window_of_one.h"

#include "learning/facts.h"
#include "system/system.h"

#define LAUNCHES 100u /* more than may be in flight behind an open valve */

static uint64_t now = 1000 * ORION_SECOND;

/* The clock of this test. The linker takes these functions instead of those of system.c. */
uint64_t orion_now(void) { return now += 100; }
void orion_sleep_precisely(uint64_t nanoseconds) { now += nanoseconds; }
void orion_futex_wake_all(const _Atomic uint32_t *word, bool shared) { (void)word, (void)shared; }
void orion_futex_wait(const _Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns, bool shared)
{
    (void)word, (void)value, (void)shared;
    now += timeout_ns;
}

static CUresult CUDAAPI no_time(float *milliseconds, CUevent start, CUevent end)
{
    (void)milliseconds, (void)start, (void)end;
    return CUDA_ERROR_NOT_READY;
}

/* Returns for how long the launches were held. */
static uint64_t launch(unsigned launches)
{
    uint64_t began = now;
    for (unsigned i = 0; i < launches; i++) {
        struct orion_work work = {.identity = IDENTITY};
        orion_admit(process, stream_record, &work);
        orion_window_launched(process, stream_record, work.expected_ns, now, work.flags);
    }
    return now - began;
}

static void all_completes(void)
{
    atomic_store(&is_complete, true);
    orion_window_reap(process, gpu);
    orion_window_drained(process, stream_record);
    orion_window_reap(process, gpu);
    CHECK(atomic_load(&orion_be(gpu)->in_flight_ns) == 0);
    atomic_store(&is_complete, false);
}

/* Work that completes as it should: each launch waits until it is the only one, and none is behind the valve. */
static void is_held_by_the_window(void)
{
    unsigned before = atomic_load(&waits);
    for (unsigned i = 0; i < 5; i++) launch(1), all_completes();
    CHECK(atomic_load(&waits) == before);
}

int main(void)
{
    begin_with_window(1); /* late */
    orion_driver.cuEventElapsedTime_v2 = no_time;
    CHECK(!orion_valve_ready(process, stream_record));
    is_held_by_the_window();
    /* A second before the first launch that does not fit, and one when all that runs ahead does not. */
    CHECK(launch(LAUNCHES) < 3 * ORION_SECOND && atomic_load(&waits) > 0);
    all_completes();
    is_held_by_the_window();
    /* A kernel that is known to wait for its program. */
    orion_facts_set_flags(orion_duration_claim(orion_durations(process), IDENTITY), ORION_FACTS_AWAITS_PROGRAM);
    CHECK(launch(LAUNCHES) < ORION_SECOND);
    all_completes();
    is_held_by_the_window();
    puts("late_watcher: ok");
    return 0;
}
