/* Scenarios of starts and ends: work that no thread waits for, contexts, schedulers and processes. Also calls that the
 * hook refuses. */
#include "scenarios.h"
#include "threads.h"

#include <string.h>
#include <unistd.h>

/* -- hp that never synchronises, streams that end, contexts that end ------------------------------------------------- */

static CUstream made;

static void hp_floods(void)
{
    for (int i = 0; i < 20; i++) launch(NULL, 1);
    DONE(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    launch(made, 2);
    DONE(cuStreamDestroy(made));
    marks[1] = now();
}
static void long_be(void) { launch(NULL, 300); }
void hp_drains_without_a_synchronise(void)
{
    CHECK(start(3) == 0); /* clients 0 and 1 are be */
    all_of(0, long_be);   /* hp's end must not wait for the whole context */
    all_of(2, hp_floods);
    all_of(1, be_runs);
    CHECK(marks[0] < marks[1] + 150 * MS);
    CHECK(figures(2).busy_periods >= 1);
}

void own_streams_end_with_their_context(void)
{
    CHECK(start(2) == 0);
    all_of(HP, be_runs);
    all_of(BE, be_runs);
    DONE(cuDevicePrimaryCtxReset(0));
    initialise();
    all_of(HP, be_runs);
    all_of(BE, be_runs);
    CHECK(figures(HP).launches >= 1 && figures(BE).launches >= 1);
}

/* Another stream would not be ordered behind the work in the first one. */
static void works_in_a_context_of_its_own(void)
{
    CUcontext mine;
    DONE(cuCtxCreate(&mine, NULL, 0, 0));
    CUstream own = stream_of(BE);
    CHECK(own != NULL);
    DONE(cuDevicePrimaryCtxReset(0));
    CHECK(stream_of(BE) == own);
    DONE(cuCtxDestroy(mine));
    initialise();
    CHECK(stream_of(BE) != NULL);
}
void the_end_of_the_primary_context_ends_no_other_own_stream(void)
{
    CHECK(start(2) == 0);
    all_of(BE, works_in_a_context_of_its_own);
    all_of(BE, be_runs);
}

/* -- Start and stop -------------------------------------------------------------------------------------------------- */

static pthread_barrier_t barrier;
static void stays_bound(void)
{
    hp_worked_until = now() + 10 * MS;
    launch(NULL, 10);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    int priority = 1;
    DONE(cuStreamGetPriority(NULL, &priority)); /* the process's own default stream again */
    CHECK(priority == 0);
    launch(NULL, 1);
    DONE(cuCtxSynchronize());
}
void stop_drains_and_unbinds(void)
{
    for (int round = 0; round < 3; round++) {
        CHECK(start(2 + round) == 0);
        pthread_barrier_init(&barrier, NULL, 2);
        pthread_t hp = in_thread(1 + round, stays_bound);
        pthread_barrier_wait(&barrier);
        CHECK(stop() == 0);
        CHECK(now() > hp_worked_until);
        CHECK(stop() == 0); /* a second stop does nothing */
        pthread_barrier_wait(&barrier);
        pthread_join(hp, NULL);
    }
    CHECK(start(2) == 0);
    CHECK(figures(HP).launches == 0);
    all_of(HP, hp_begins);
    pthread_t be = in_thread(BE, be_runs);
    all_of(HP, hp_ends);
    pthread_join(be, NULL);
    CHECK(marks[0] > hp_worked_until);
    CHECK(figures(BE).launches == 1 && figures(HP).launches == 1);
    CHECK(stop() == 0);
}

/* More streams than the hook has records for, and one that is still captured when the scheduler stops. */
static void leaves_streams(void)
{
    static CUstream many[1100];
    for (unsigned i = 0; i < sizeof many / sizeof *many; i++) {
        DONE(cuStreamCreate(&many[i], CU_STREAM_NON_BLOCKING));
        launch(many[i], 0);
    }
    DONE(cuStreamSynchronize(many[0]));
    DONE(cuStreamBeginCapture(many[0], CU_STREAM_CAPTURE_MODE_RELAXED));
}
void roles_may_change_after_any_end(void)
{
    CHECK(start(2) == 0);
    all_of(BE, leaves_streams);
    CHECK(stop() == 0);
    CHECK(start(2) == 0);
    CHECK(set_role(BE, ORION_CLIENT_HP) == 0);
}

void wrong_calls_are_refused(void)
{
    struct orion_client_figures unused;
    CHECK(bind_to(0) == -1 && strstr(last_error(), "no scheduler") != NULL);
    CHECK(bind_to(-1) == 0);
    CHECK(set_policy(ORION_SCHEDULER_GATE, 1000) == -1 && ask_figures(0, &unused, sizeof unused) == -1);
    CHECK(start(0) == -1 && start(ORION_CLIENTS_MOST + 1) == -1 && strstr(last_error(), "12") != NULL);
    CHECK(start(2) == 0);
    CHECK(start(2) == -1 && strstr(last_error(), "runs already") != NULL);
    CHECK(bind_to(2) == -1 && bind_to(-2) == -1 && stream_of(2) == NULL);
    CHECK(set_policy(3, 1000) == -1 && set_policy(ORION_SCHEDULER_ORION, 999) == -1);
    CHECK(set_role(0, 0) == -1 && set_role(5, ORION_CLIENT_HP) == -1);
    char few[8];
    memset(few, 1, sizeof few);
    CHECK(ask_figures(0, (struct orion_client_figures *)few, 4) == 0 && few[0] == ORION_CLIENT_BE && few[4] == 1);
}

void a_client_of_an_agent_is_refused(void)
{
    DONE(cuCtxSynchronize());
    launch(NULL, 1);
    DONE(cuStreamSynchronize(NULL));
    CHECK(start(2) == -1);
    CHECK(strstr(last_error(), "ORION_ROOT") != NULL);
}

void the_environment_names_hp(void) /* ORION_HP_CLIENT=0 */
{
    CHECK(setenv("ORION_HP_CLIENT", "1", 1) == 0); /* the value at the start of the process holds */
    CHECK(start(2) == 0);
    CHECK(figures(0).role == ORION_CLIENT_HP && figures(1).role == ORION_CLIENT_BE);
}

void a_forked_child_starts_its_own_scheduler(void)
{
    CHECK(start(2) == 0);
    all_of(HP, be_runs);
    CHECK(bind_to(HP) == 0);
    int result[2], stayed = 1;
    CHECK(pipe(result) == 0);
    if (fork() == 0) {
        stayed = bind_to(0) == -1 && start(2) == 0 && bind_to(0) == 0 && stop() == 0 ? 0 : 2;
        _exit(write(result[1], &stayed, sizeof stayed) != sizeof stayed);
    }
    CHECK(read(result[0], &stayed, sizeof stayed) == sizeof stayed && stayed == 0);
    be_runs();
    CHECK(figures(HP).launches == 2);
}
