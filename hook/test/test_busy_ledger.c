/* Launches while another thread has the ledger for long, as one that lost its CPU with it: no stop is armed and no chunk is written
 * then, but hp must find no more work in flight than the window allows. */
#include "window_of_one.h"

#include <pthread.h>

#include "until.h"

static uint64_t expected_ns; /* of a launch; two do not fit into the window */
static _Atomic unsigned launches;

static uint64_t in_flight(void) { return atomic_load(&orion_be(gpu)->in_flight_ns); }
static uint64_t window_waits(void) { return atomic_load(&gpu->record->window_waits); }
static void set_watched(uint32_t watched) { atomic_store(&orion_be(gpu)->valve.watched, watched); }

static void launch(void)
{
    struct orion_work work = {.identity = IDENTITY};
    orion_admit(process, stream_record, &work);
    orion_window_launched(process, stream_record, work.expected_ns, orion_now(), work.flags);
    atomic_fetch_add(&launches, 1);
}

static void *launch_in_thread(void *unused)
{
    (void)unused;
    launch();
    return NULL;
}

static pthread_t start_launch(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, launch_in_thread, NULL) == 0);
    return thread;
}

/* The launch waits instead of going. */
static void await_that_it_waits(uint64_t waits_before, unsigned launches_before)
{
    UNTIL(window_waits() != waits_before || atomic_load(&launches) != launches_before);
    CHECK(atomic_load(&launches) == launches_before);
}

static void nothing_is_in_flight(void)
{
    CHECK(orion_ledger_try_lock(gpu));
    orion_chunks_drop(stream_record);
    atomic_store(&orion_be(gpu)->in_flight_ns, 0);
    orion_ledger_unlock(gpu);
}

/* The work in flight is behind the valve, so there is much of it. */
static void a_launch_that_cannot_be_armed_waits_for_room_in_the_window(void)
{
    atomic_store(&orion_be(gpu)->in_flight_ns, 20 * WINDOW_NS);
    CHECK(orion_ledger_try_lock(gpu));
    uint64_t before = window_waits();
    pthread_t thread = start_launch();
    await_that_it_waits(before, 0);
    CHECK(in_flight() == 20 * WINDOW_NS || in_flight() == 20 * WINDOW_NS + expected_ns); /* it may try once more just now */
    orion_ledger_unlock(gpu);
    CHECK(pthread_join(thread, NULL) == 0 && atomic_load(&launches) == 1);
    CHECK(atomic_load(&waits) == 1 && in_flight() == 20 * WINDOW_NS + expected_ns); /* now it is armed */
    nothing_is_in_flight();
}

/* The next launch must be behind a wait. */
static void a_launch_that_goes_unarmed_makes_a_wait_due(void)
{
    launch();
    unsigned before = atomic_load(&waits);
    nothing_is_in_flight();
    CHECK(orion_ledger_try_lock(gpu));
    launch();
    orion_ledger_unlock(gpu);
    CHECK(atomic_load(&waits) == before && in_flight() == expected_ns);
    nothing_is_in_flight();
    launch();
    CHECK(atomic_load(&waits) == before + 1);
    nothing_is_in_flight();
}

/* The gate on the CPU, as when the watcher is late. */
static void a_launch_counts_although_no_chunk_has_it(void)
{
    set_watched(1);
    CHECK(orion_ledger_try_lock(gpu));
    launch();
    CHECK(in_flight() == expected_ns);
    uint64_t before = window_waits();
    unsigned launches_before = atomic_load(&launches);
    pthread_t thread = start_launch();
    await_that_it_waits(before, launches_before);
    orion_ledger_unlock(gpu);
    atomic_store(&is_complete, true);
    CHECK(pthread_join(thread, NULL) == 0 && in_flight() == expected_ns);
    atomic_store(&is_complete, false);
    set_watched(2);
    nothing_is_in_flight();
}

/* As when a signal handler launches that has interrupted the thread with the ledger. */
static void a_ledger_that_stays_busy_does_not_hold_launches_for_ever(void)
{
    CHECK(orion_ledger_try_lock(gpu));
    uint64_t began = orion_now();
    for (unsigned i = 0; i < 4; i++) launch();
    CHECK(orion_now() < began + DEADLINE_NS);
    orion_ledger_unlock(gpu);
    nothing_is_in_flight();
}

int main(void)
{
    bool sample;
    begin_with_window(2); /* on time */
    expected_ns = orion_duration_expect(orion_durations(process), IDENTITY, &sample);
    CHECK(expected_ns > WINDOW_NS / 2 && expected_ns < WINDOW_NS);
    CHECK(orion_valve_ready(process, stream_record));
    a_launch_that_cannot_be_armed_waits_for_room_in_the_window();
    a_launch_that_goes_unarmed_makes_a_wait_due();
    a_launch_counts_although_no_chunk_has_it();
    a_ledger_that_stays_busy_does_not_hold_launches_for_ever();
    puts("busy_ledger: ok");
    return 0;
}
