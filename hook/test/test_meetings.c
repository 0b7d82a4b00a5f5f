/* A collective waits in its stream until the streams of its peers have come to it, for a bounded time. */
#include "tied_gpus.h"

#include <string.h>

/* As launch, with the arrival in the stream: it is written, then come the waits for the other two GPUs. */
static void arrive_in(struct orion_stream_record *stream_record)
{
    struct orion_work work = {0};
    orion_meeting_number(process, stream_record, &work);
    work.collective = orion_collective_begin(process, stream_record->gpu);
    CHECK(work.arrival != 0 && work.collective != 0 && orion_collective_ready(process, stream_record));
    CHECK(orion_collective_pass(process, stream_record, &work));
}
static void arrive(unsigned device) { arrive_in(&stream_records[device]); }

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

/* As if no wait of GPU 0 had been in vain. */
static void forget_ends(void)
{
    struct orion_meetings *meetings = &orion_collectives(process)->meetings[0];
    atomic_store(&meetings->apart, 0);
    for (unsigned i = 0; i < ORION_MEETING_STREAMS; i++) {
        atomic_store(&meetings->outsiders[i], 0);
        atomic_store(&meetings->tried[i], 0);
    }
    memset(meetings->seen, 0, sizeof meetings->seen);
}

/* Looks as a watcher does, until GPU 0's stream is empty. */
static void look_until_empty(void)
{
    uint64_t began = orion_now();
    while (devices[0].count > 0) {
        CHECK(orion_now() - began < 10 * ORION_SECOND);
        orion_sleep_precisely(10 * ORION_MILLISECOND);
        orion_collective_update(process);
        run_all();
    }
}

static void a_wait_in_vain_ends(void)
{
    arrive(0);
    run_all();
    set_hp(2, true); /* then GPU 2 may just be held, so the time does not count */
    uint64_t looked = 0;
    for (uint64_t began = orion_now(); orion_now() - began < 1200 * ORION_MILLISECOND;) {
        looked = orion_now(); /* only what passes from this look on may count */
        orion_collective_update(process);
        set_hp(2, true);
        run_all();
        CHECK(devices[0].count > 0);
        orion_sleep_precisely(50 * ORION_MILLISECOND);
    }
    set_hp(2, false);
    look_until_empty();
    CHECK(orion_now() - looked > 900 * ORION_MILLISECOND);
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

static void another_ranks_end_of_a_wait_hides_no_wait(void)
{
    struct orion_rank *own = atomic_load(&orion_collectives(process)->ranks.mine[0]);
    uint32_t arrived = atomic_load(&own->arrived[0]);
    arrive(0);
    run_all();
    CHECK(devices[0].count > 0);
    atomic_store(&own->arrived[0], arrived + 100); /* another rank was far ahead, and its wait for this one has ended */
    CHECK(orion_meetings_wait(process));
    look_until_empty();
    arrive(1), arrive(2);
    run_all();
    CHECK(devices[1].count == 0 && devices[2].count == 0);
    forget_ends();
}

/* The streams' numbers are far apart. */
static void waits_in_vain_in_turn_end_too(void)
{
    struct orion_stream_record others[GPUS];
    struct orion_work work = {0};
    for (unsigned i = 0; i < GPUS; i++) {
        others[i] = (struct orion_stream_record){.gpu = gpus[i], .handle = stream_records[i].handle};
        arrive_in(&others[i]);
    }
    run_all();
    for (unsigned i = 0; i < 200; i++) orion_meeting_number(process, &others[0], &work);
    for (unsigned i = 0; i < 4; i++) {
        arrive(0);
        run_all();
        look_until_empty();
        arrive(1), arrive(2);
        arrive_in(&others[0]);
        run_all();
        look_until_empty();
        arrive_in(&others[1]), arrive_in(&others[2]);
        run_all();
    }
    CHECK(!orion_meeting_waits(process, gpus[0], &work));
    forget_ends();
}

/* Only watchers end waits, so without one there must be none. */
static void without_a_watcher_no_stream_waits(void)
{
    struct orion_work work = {.arrival = 1};
    set_watcher(0, false);
    CHECK(!orion_meeting_waits(process, gpus[0], &work));
    set_watcher(0, true);
    CHECK(orion_meeting_waits(process, gpus[0], &work));
}

/* GPUs 0 and 1 come to a collective. Returns whether they begin it within 0.2 s. */
static bool two_begin(void)
{
    arrive(0), arrive(1);
    for (unsigned looks = 0; looks < 20; looks++) {
        orion_collective_update(process);
        run_all();
        if (devices[0].count + devices[1].count == 0) return true;
        orion_sleep_precisely(10 * ORION_MILLISECOND);
    }
    return false;
}

/* GPUs 0 and 1 are one group. GPU 2 is another one, and comes to its collectives less often. */
static void a_group_does_not_wait_for_outsiders(void)
{
    unsigned slow = 0;
    uint64_t began = orion_now();
    for (unsigned begun = 0; begun < 20;) {
        CHECK(orion_now() - began < 20 * ORION_SECOND);
        if (!two_begin()) begun = 0, slow++;
        else if (++begun % 5 == 0) arrive(2);
        while (devices[0].count + devices[1].count > 0) arrive(2), run_all();
    }
    CHECK(slow >= 3);
    for (unsigned i = 0; i < 2; i++) CHECK(atomic_load(&orion_collectives(process)->meetings[i].outsiders[0]) == 1u << 2);
    arrive(0);
    run_all();
    CHECK(devices[0].count > 0); /* GPU 1 is waited for as before */
    arrive(1);
    run_all();
    CHECK(devices[0].count == 0);
    forget_ends();
}

static void after_several_waits_in_vain_a_rank_waits_no_more(void)
{
    for (unsigned i = 0; i < 10; i++) {
        arrive(0);
        run_all();
        CHECK(i >= 3 || devices[0].count > 0);
        CHECK(i < 6 || devices[0].count == 0);
        look_until_empty();
        arrive(1), arrive(2); /* late, but they come */
        run_all();
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
    another_ranks_end_of_a_wait_hides_no_wait();
    waits_in_vain_in_turn_end_too();
    without_a_watcher_no_stream_waits();
    a_group_does_not_wait_for_outsiders();
    after_several_waits_in_vain_a_rank_waits_no_more();
    puts("meetings: ok");
    return 0;
}
