/* Scenarios of waiting: be waits for hp; also what threads without a client do. */
#include "scenarios.h"
#include "threads.h"

#include <string.h>

void be_waits_for_hp(void)
{
    CHECK(start(2) == 0);
    all_of(HP, hp_begins);
    pthread_t be = in_thread(BE, be_runs);
    all_of(HP, hp_ends);
    pthread_join(be, NULL);
    CHECK(marks[0] > hp_worked_until);
    CHECK(marks[0] < marks[1] + 100 * MS);
    CHECK(figures(BE).role == ORION_CLIENT_BE && figures(HP).role == ORION_CLIENT_HP);
    CHECK(figures(BE).gated_launches >= 1 && figures(BE).gated_ns > 20 * MS);
    CHECK(figures(HP).gated_launches == 0 && figures(HP).busy_periods == 1 && figures(HP).busy_ns > 99 * MS);
}

void without_a_policy_no_client_waits(void)
{
    CHECK(start(2) == 0);
    CHECK(set_policy(ORION_SCHEDULER_NONE, 1000) == 0);
    all_of(HP, hp_begins);
    all_of(BE, be_runs);
    all_of(HP, hp_ends);
    CHECK(marks[0] < marks[1]);
    CHECK(figures(BE).gated_launches == 0);
}

void a_policy_changes_under_a_waiter(void)
{
    CHECK(start(2) == 0);
    all_of(HP, hp_begins);
    pthread_t be = in_thread(BE, be_runs);
    CHECK(set_policy(ORION_SCHEDULER_NONE, 1000) == 0);
    pthread_join(be, NULL);
    all_of(HP, hp_ends);
    CHECK(marks[0] < marks[1]);
}

/* A policy number that only the library of `orion bench` knows, and an unassigned one. */
void unknown_policies_are_refused(void)
{
    CHECK(start(2) == 0);
    CHECK(set_policy(17, 1000) == -1 && strstr(last_error(), "no policy 17") != NULL);
    CHECK(set_policy(3, 1000) == -1);
}

void unbound_threads_pass(void)
{
    CHECK(start(2) == 0);
    all_of(HP, hp_begins);
    all_of(-1, be_runs);
    CHECK(figures(HP).launches == 1 && figures(BE).launches == 0);
    all_of(HP, hp_ends);
    CHECK(marks[0] < marks[1]);
}

/* As Python's interpreter lock: be's thread keeps it during a blocking copy, and hp's thread needs it before it can
 * synchronise. hp is found idle without that call, so neither waits for ever. */
static pthread_mutex_t interpreter = PTHREAD_MUTEX_INITIALIZER;

static void be_copies(void)
{
    static char from[1 << 20];
    CUdeviceptr to;
    DONE(cuMemAlloc(&to, sizeof from));
    pthread_mutex_lock(&interpreter);
    all_of(HP, hp_begins);
    DONE(cuMemcpyHtoD(to, from, sizeof from));
    marks[0] = now();
    pthread_mutex_unlock(&interpreter);
}

static void hp_ends_with_the_lock(void)
{
    pthread_mutex_lock(&interpreter);
    hp_ends();
    pthread_mutex_unlock(&interpreter);
}

void a_held_copy_may_keep_a_lock_that_hp_needs(void)
{
    CHECK(start(2) == 0);
    pthread_t be = in_thread(BE, be_copies), hp = in_thread(HP, hp_ends_with_the_lock);
    pthread_join(be, NULL);
    pthread_join(hp, NULL);
    CHECK(marks[0] > hp_worked_until);
}
