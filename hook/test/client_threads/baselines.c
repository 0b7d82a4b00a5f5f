/* Scenarios for the baseline policies, with threads of one process as clients. They need the library of `orion bench`. */
#define ORION_BASELINES 1
#include <orion/policy.h>

#include "scenarios.h"
#include "threads.h"

static void be_runs_twice(void)
{
    be_runs();
    marks[2] = marks[0];
    be_runs();
}

static void be_learns(void)
{
    launch(NULL, 100);
    launch(NULL, 10);
    DONE(cuStreamSynchronize(NULL));
}
static void be_runs_as_many_blocks(void) /* reef requires that be's kernel fills no fewer SMs than hp's */
{
    launch(NULL, 10);
    DONE(cuStreamSynchronize(NULL));
    marks[2] = now();
    launch(NULL, 10);
    DONE(cuStreamSynchronize(NULL));
    marks[0] = now();
}

/* Clients of one process share the learnt durations. be_learns also launches the kernel that hp launches later, so reef
 * knows its duration. */
void reef_pairs_one_launch_with_hps_launch(void)
{
    CHECK(start(2) == 0);
    all_of(BE, be_learns);
    CHECK(set_policy(ORION_POLICY_REEF, 1000) == 0);
    all_of(HP, hp_begins);
    pthread_t be = in_thread(BE, be_runs_as_many_blocks);
    all_of(HP, hp_ends);
    pthread_join(be, NULL);
    CHECK(marks[2] < marks[1] && marks[0] > hp_worked_until);
    CHECK(figures(BE).overlapped_launches == 1 && figures(BE).gated_launches >= 1);
}

void ticktock_alternates_iterations(void)
{
    CHECK(start(2) == 0);
    CHECK(set_policy(ORION_POLICY_TICKTOCK, 1000) == 0);
    all_of(HP, hp_begins);
    pthread_t be = in_thread(BE, be_runs_twice);
    all_of(HP, hp_ends);
    pthread_join(be, NULL);
    CHECK(marks[2] < marks[1] && marks[0] > hp_worked_until);
}

void orion_2024_lets_be_run_beside_hp(void)
{
    CHECK(start(2) == 0);
    CHECK(set_policy(ORION_POLICY_ORION_2024, 1000) == 0);
    all_of(HP, hp_begins);
    all_of(BE, be_runs_twice);
    all_of(HP, hp_ends);
    CHECK(marks[0] < marks[1]);
    CHECK(figures(BE).overlapped_launches == 2 && figures(BE).gated_launches == 0);
}

void streams_delay_no_client(void)
{
    CHECK(start(2) == 0);
    CHECK(set_policy(ORION_POLICY_STREAMS, 1000) == 0);
    all_of(HP, hp_begins);
    all_of(BE, be_runs_twice);
    all_of(HP, hp_ends);
    CHECK(marks[0] < marks[1] && figures(BE).gated_launches == 0);
}
