/* A collective may start on all tied GPUs or on none. The tests check the numbers of collectives, the word that stops
 * collectives, and GPUs that run in any order. */
#include "tied_gpus.h"

#include <stdlib.h>

#include "learning/kernels.h"
#include "process/plan.h"

#define ROUNDS 20000

static uint32_t launch(unsigned device)
{
    uint32_t number = orion_collective_begin(process, gpus[device]);
    if (number == 0) return 0;
    CHECK(orion_collective_ready(process, &stream_records[device]));
    CHECK(orion_collective_pass(process, &stream_records[device], &(struct orion_work){.collective = number}));
    return number;
}

static void go_unarmed(unsigned device, uint32_t number)
{
    orion_collective_note_unarmed(process, &stream_records[device], &(struct orion_work){.collective = number});
}

/* -- Tests ------------------------------------------------------------------------------------------------------------ */

static void names(void)
{
    CHECK(orion_collective_is_name("ncclDevKernel_AllReduce_Sum_f32_RING_LL"));
    CHECK(orion_collective_is_name("_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"));
    CHECK(orion_collective_is_name("ncclKernel_AllReduce_RING_LL_Sum_float"));
    CHECK(!orion_collective_is_name("ampere_sgemm_128x64_nn"));
    CHECK(!orion_collective_is_name("_ZN2at6native4ncclE"));
    CHECK(!orion_collective_is_name("_Z"));
    CHECK(!orion_collective_is_name(""));
}

static void one_gpu_is_not_tied(void)
{
    for (unsigned i = 0; i < 5; i++) CHECK(launch(0) == 0);
    set_hp(0, true);
    CHECK(!orion_collective_update(process));
    CHECK(orion_collective_blocked_by(process, gpus[0]) == NULL);
    set_hp(0, false);
    for (unsigned i = 0; i < 5; i++) CHECK(launch(1) == i + 1);
    CHECK(launch(0) == 6 && launch(1) == 6);
    run_all();
    CHECK(devices[0].count == 0 && devices[1].count == 0);
}

static void what_has_begun_is_finished_and_nothing_else_begins(void)
{
    launch(0), launch(1), launch(0), launch(1);
    step(0), step(0); /* the first collective runs on GPU 0 */
    set_hp(1, true);
    CHECK(orion_collective_update(process));
    CHECK(!orion_collective_update(process)); /* the state has settled */
    CHECK(orion_collective_blocked_by(process, gpus[0]) == gpus[1]);
    run_all();
    CHECK(devices[0].count == 2 && devices[1].count == 2); /* the first finishes on GPU 1; the second finishes on neither */
    set_hp(1, false);
    orion_collective_update(process);
    run_all();
    CHECK(devices[0].count == 0 && devices[1].count == 0);
    CHECK(orion_collective_blocked_by(process, gpus[0]) == NULL);
}

/* GPU 0 has passed its wait, and the word closes before GPU 0 has written this. */
static void what_began_while_closing_is_seen_at_the_next_look(void)
{
    launch(0), launch(1);
    step(0);
    set_hp(0, true);
    CHECK(orion_collective_update(process));
    CHECK(!step(1));
    step(0);
    CHECK(orion_collective_update(process));
    run_all();
    CHECK(devices[0].count == 0 && devices[1].count == 0);
    set_hp(0, false);
    orion_collective_update(process);
}

static void on_the_cpu_the_same_holds(void)
{
    uint32_t first = orion_collective_begin(process, gpus[0]);
    CHECK(!orion_collective_held(process, gpus[0], first));
    go_unarmed(0, first);
    CHECK(!orion_collective_peer_launched(process, gpus[0], first));
    set_hp(1, true);
    CHECK(orion_collective_begin(process, gpus[1]) == first);
    CHECK(orion_collective_peer_launched(process, gpus[1], first));
    CHECK(!orion_collective_held(process, gpus[1], first)); /* although hp on that GPU is busy */
    go_unarmed(1, first);
    uint32_t second = orion_collective_begin(process, gpus[0]);
    CHECK(orion_collective_held(process, gpus[0], second));
    set_hp(1, false);
    orion_collective_wait(process, gpus[0], second);
    go_unarmed(0, second);
    go_unarmed(1, orion_collective_begin(process, gpus[1]));
}

/* GPUs run in any order, one far ahead of the other, and hp becomes busy and idle. After each closing of the word and
 * two checks, all GPUs stop at the same number. */
static void whenever_hp_comes_all_gpus_stop_at_one_number(void)
{
    unsigned seed = 5, stops = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned device = (unsigned)rand_r(&seed) % 2;
        if (devices[0].count < 20 && devices[1].count < 20) launch(0), launch(1);
        for (unsigned steps = (unsigned)rand_r(&seed) % 3; steps > 0; steps--) {
            unsigned left = devices[device].count; /* a collective ends only after its peers have started */
            if (left + 2 <= devices[1 - device].count) break;
            step(device);
        }
        if (rand_r(&seed) % 50 != 0) continue;
        unsigned whose = (unsigned)rand_r(&seed) % 2;
        set_hp(whose, true);
        unsigned before = devices[0].count < devices[1].count ? devices[0].count : devices[1].count;
        orion_collective_update(process);
        for (unsigned i = 0; i < 2; i++)
            if (devices[i].count % 2 == 1) step(i); /* a GPU that has passed its wait writes this */
        orion_collective_update(process);
        run_all();
        CHECK(devices[0].count == devices[1].count && devices[0].count % 2 == 0);
        CHECK(devices[0].count + 1 >= before); /* nothing else started */
        CHECK(!orion_collective_update(process));
        set_hp(whose, false);
        orion_collective_update(process);
        stops++;
    }
    run_all();
    CHECK(stops > ROUNDS / 100 && devices[0].count == 0 && devices[1].count == 0);
}

static void set_turn(unsigned device, bool its_turn)
{
    struct orion_grant *grant = (struct orion_grant *)(uintptr_t)orion_gpu_grant(gpus[device]);
    *grant = (struct orion_grant){.turn_begin_ns = ORION_NO_TURN, .turn_end_ns = ORION_NO_TURN};
    grant->plan_until_ns = its_turn ? 0 : UINT64_MAX;
}

/* The turn of a job ends on all of its GPUs. What has begun on one of them would spin there through the turns of others. */
static void without_an_hp_what_has_begun_is_finished_after_the_turn(void)
{
    for (unsigned i = 0; i < 2; i++) atomic_store(&policy(i)->hp_clients, 0);
    launch(0), launch(1), launch(0), launch(1);
    step(0), step(0); /* the first collective runs on GPU 0 */
    set_turn(0, false), set_turn(1, false);
    CHECK(orion_collective_update(process));
    run_all();
    CHECK(devices[0].count == 2 && devices[1].count == 2); /* the first finishes on GPU 1; the second finishes on neither */
    set_turn(0, true), set_turn(1, true);
    orion_collective_update(process);
    run_all();
    CHECK(devices[0].count == 0 && devices[1].count == 0);
    uint32_t first = orion_collective_begin(process, gpus[0]); /* on the CPU the same holds */
    go_unarmed(0, first);
    set_turn(0, false), set_turn(1, false);
    CHECK(orion_collective_begin(process, gpus[1]) == first);
    CHECK(!orion_collective_held(process, gpus[1], first));
    go_unarmed(1, first);
    uint32_t second = orion_collective_begin(process, gpus[0]);
    CHECK(orion_collective_held(process, gpus[0], second));
    set_turn(0, true), set_turn(1, true);
    CHECK(!orion_collective_held(process, gpus[0], second));
    go_unarmed(0, second);
    go_unarmed(1, orion_collective_begin(process, gpus[1]));
    for (unsigned i = 0; i < 2; i++) atomic_store(&policy(i)->hp_clients, 1);
}

/* GPUs 1 and 2 have a separate communicator and are far ahead of GPU 0. The word still holds every GPU: it lets no
 * GPU continue so that another can end its collective. */
static void out_of_step_all_are_held(void)
{
    CHECK(launch(2) != 0);
    for (unsigned i = 0; i < 40; i++) launch(1), launch(2), run_all();
    launch(0), launch(1), launch(2);
    set_hp(0, true);
    orion_collective_update(process);
    run_all();
    CHECK(devices[0].count == 2 && devices[1].count == 2 && devices[2].count == 2);
    atomic_store(&policy(0)->hp_clients, 0); /* GPU 0 has no hp client any more */
    set_hp(0, false);
    orion_collective_update(process);
    run_all();
    CHECK(devices[0].count == 0 && devices[1].count == 0 && devices[2].count == 0);
    atomic_store(&policy(0)->hp_clients, 1);
}

static void a_context_that_ends_opens(void)
{
    set_hp(1, true);
    launch(0), launch(1), launch(2);
    orion_collective_update(process);
    run_all();
    CHECK(devices[0].count + devices[1].count + devices[2].count > 0);
    orion_forbid_touch(process);
    orion_stops_open(process);
    CHECK(!orion_collective_update(process));
    run_all();
    CHECK(devices[0].count + devices[1].count + devices[2].count == 0);
    orion_allow_touch(process);
    set_hp(1, false);
}

int main(void)
{
    begin();
    names();
    one_gpu_is_not_tied();
    what_has_begun_is_finished_and_nothing_else_begins();
    what_began_while_closing_is_seen_at_the_next_look();
    on_the_cpu_the_same_holds();
    whenever_hp_comes_all_gpus_stop_at_one_number();
    without_an_hp_what_has_begun_is_finished_after_the_turn();
    out_of_step_all_are_held();
    a_context_that_ends_opens();
    puts("collective: ok");
    return 0;
}
