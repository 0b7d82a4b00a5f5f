/* A collective waits in its stream until the streams of its peers have come to it, for a bounded time. */
#include "tied_gpus.h"

/* As launch, with the arrival in the stream: it is written, then come the waits for the other two GPUs. */
static void arrive(unsigned device)
{
    struct orion_work work = {0};
    orion_meeting_number(process, &stream_records[device], &work);
    work.collective = orion_collective_begin(process, gpus[device]);
    CHECK(work.arrival != 0 && work.collective != 0 && orion_collective_ready(process));
    CHECK(orion_collective_pass(process, &stream_records[device], &work));
}

static void a_collective_begins_once_all_gpus_have_come_to_it(void)
{
    for (unsigned i = 0; i < GPUS; i++) arrive(i);
    for (unsigned i = 0; i < GPUS; i++) CHECK(devices[i].count == 3); /* none has been here before, so none waits */
    run_all();
    arrive(0), arrive(1);
    CHECK(devices[0].count == 5 && devices[1].count == 5);
    run_all();
    CHECK(devices[0].count == 3 && devices[1].count == 3); /* both wait for GPU 2 */
    CHECK(orion_meetings_wait(process));
    atomic_store(&policy(2)->hp_clients, 0);
    arrive(2);
    CHECK(devices[2].count == 3); /* without hp it only writes */
    run_all();
    for (unsigned i = 0; i < GPUS; i++) CHECK(devices[i].count == 0);
    CHECK(!orion_meetings_wait(process));
    atomic_store(&policy(2)->hp_clients, 1);
}

/* Looks as a watcher does, until GPU 0's stream is empty. Returns the time that this took. */
static uint64_t look_until_empty(void)
{
    uint64_t began = orion_now();
    while (devices[0].count > 0) {
        CHECK(orion_now() - began < 10 * ORION_SECOND);
        orion_sleep_precisely(10 * ORION_MILLISECOND);
        orion_collective_update(process);
        run_all();
    }
    return orion_now() - began;
}

static void a_wait_in_vain_ends(void)
{
    arrive(0);
    run_all();
    set_hp(2, true); /* then GPU 2 may just be held, so the time does not count */
    for (uint64_t began = orion_now(); orion_now() - began < 1200 * ORION_MILLISECOND;) {
        orion_collective_update(process);
        set_hp(2, true);
        run_all();
        CHECK(devices[0].count > 0);
        orion_sleep_precisely(50 * ORION_MILLISECOND);
    }
    set_hp(2, false);
    CHECK(look_until_empty() > 900 * ORION_MILLISECOND);
    arrive(1), arrive(2);
    run_all();
    CHECK(devices[1].count == 0 && devices[2].count == 0);
}

static void a_context_that_ends_ends_waits(void)
{
    arrive(0);
    run_all();
    CHECK(devices[0].count > 0);
    orion_forbid_touch(process);
    orion_stops_open(process);
    run_all();
    CHECK(devices[0].count == 0);
    orion_allow_touch(process);
    arrive(1), arrive(2);
    run_all();
}

static void a_rank_that_has_left_is_not_waited_for(void)
{
    struct orion_rank *left = atomic_load(&orion_collectives(process)->ranks.mine[2]);
    arrive(0), arrive(1);
    run_all();
    CHECK(devices[0].count > 0 && devices[1].count > 0);
    atomic_store(&left->tied, 0);
    atomic_store(&left->arrived[0], 0); /* the agent clears the words */
    orion_collective_update(process);
    run_all();
    CHECK(devices[0].count == 0 && devices[1].count == 0);
    arrive(0);
    run_all();
    orion_collective_update(process);
    run_all();
    CHECK(devices[0].count > 0); /* GPU 1 is waited for as before */
    arrive(1);
    run_all();
    CHECK(devices[0].count == 0 && devices[1].count == 0);
    arrive(2), arrive(2); /* as if another rank had its place */
    run_all();
    CHECK(devices[2].count == 0);
}

static void after_several_waits_in_vain_a_rank_waits_no_more(void)
{
    for (unsigned i = 0; i < 10; i++) {
        arrive(0);
        run_all();
        CHECK((devices[0].count == 0) == (i >= 2)); /* the wait in vain above was the first of three */
        look_until_empty();
    }
}

int main(void)
{
    begin();
    for (unsigned i = 0; i < GPUS; i++) orion_collective_begin(process, gpus[i]); /* ties them */
    a_collective_begins_once_all_gpus_have_come_to_it();
    a_wait_in_vain_ends();
    a_context_that_ends_ends_waits();
    a_rank_that_has_left_is_not_waited_for();
    after_several_waits_in_vain_a_rank_waits_no_more();
    puts("meetings: ok");
    return 0;
}
