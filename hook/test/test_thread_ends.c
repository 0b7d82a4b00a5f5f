/* A thread's default stream ends with it. Where the hook does not see the end of a thread, it finds out when a new one has its place. */
#include "ending_streams.h"

#include <pthread.h>

#include "core/thread_ends.h"
#include "streams/capture.h"

static const struct orion_stream_name own = {CU_STREAM_PER_THREAD, false};
static const void *place; /* of the thread-local words of the last thread */

static void note_place(void)
{
    static _Thread_local char words;
    place = &words;
}

static void *launch_in_own(void *unused)
{
    (void)unused;
    note_place();
    return launch_in(orion_stream_record_of(process, own));
}
static void *prove_own(void *unused)
{
    (void)unused;
    note_place();
    prove((struct orion_proof){.scope = ORION_PROOF_STREAM, .blocks = true, .stream = own});
    return NULL;
}

/* Runs in a thread that ends, and whose place the next one gets. */
static struct orion_stream_record *in_thread(void *(*run)(void *))
{
    static const void *first;
    pthread_t thread;
    void *stream_record;
    CHECK(pthread_create(&thread, NULL, run, NULL) == 0 && pthread_join(thread, &stream_record) == 0);
    if (first == NULL) first = place;
    CHECK(place == first);
    return stream_record;
}

static bool is_proven(const struct orion_stream_record *stream_record)
{
    return atomic_load(&stream_record->drained) == atomic_load(&stream_record->begun);
}

/* A new thread's default stream is not that of the ended thread, whose work goes on. */
static void a_thread_ends_with_work_in_its_stream(void)
{
    struct orion_stream_record *ended = in_thread(launch_in_own);
    uint32_t epoch = atomic_load(&process->stream_record_epoch);
    in_thread(prove_own);
    CHECK(!is_proven(ended) && in_flight() == COST && atomic_load(&ended->state) == ORION_STREAM_RECORD_ENDING);
    CHECK(atomic_load(&process->stream_record_epoch) != epoch);
    struct orion_stream_record *other = in_thread(launch_in_own);
    CHECK(other != ended && in_flight() == 2 * COST);
    prove((struct orion_proof){.scope = ORION_PROOF_CONTEXT, .blocks = true});
    CHECK(in_flight() == 0 && is_free(ended) && is_proven(other));
    CHECK(in_thread(launch_in_own) == ended); /* the first record that is free */
    in_thread(prove_own);
    now += ORION_SECOND;
    orion_window_reap(process, gpu); /* by its expected time the work is complete */
    CHECK(in_flight() == 0);
    orion_window_reap(process, gpu);
    CHECK(is_free(ended));
}

static void hp_stays_busy_when_a_thread_ends(void)
{
    atomic_store(&gpu->role, ORION_ROLE_HP);
    struct orion_stream_record *ended = in_thread(launch_in_own);
    in_thread(prove_own);
    CHECK(!is_proven(ended));
    CHECK(in_thread(launch_in_own) != ended);
    prove((struct orion_proof){.scope = ORION_PROOF_CONTEXT, .blocks = true});
    CHECK(is_free(ended));
    atomic_store(&gpu->role, ORION_ROLE_BE);
}

static void threads_that_end_leave_no_records(void)
{
    for (unsigned i = 0; i < 2 * ORION_STREAM_RECORDS; i++) {
        CHECK(!orion_stream_record_is_shared(process, in_thread(launch_in_own)));
        prove((struct orion_proof){.scope = ORION_PROOF_CONTEXT, .blocks = true});
    }
}

/* Threads whose stacks differ in size get other places, so none of them finds the records of the others. */
static void a_record_ends_with_its_thread(void)
{
    prove((struct orion_proof){.scope = ORION_PROOF_CONTEXT, .blocks = true});
    atomic_store(&process->thread_begins, orion_thread_ends_watch);
    struct orion_stream_record *ended = in_thread(launch_in_own);
    CHECK(atomic_load(&ended->state) == ORION_STREAM_RECORD_ENDING && in_flight() == COST);
    prove((struct orion_proof){.scope = ORION_PROOF_CONTEXT, .blocks = true});
    CHECK(is_free(ended) && in_flight() == 0);
    atomic_store(&gpu->role, ORION_ROLE_HP);
    ended = in_thread(launch_in_own);
    CHECK(atomic_load(&ended->state) == ORION_STREAM_RECORD_ENDED && !is_proven(ended));
    prove((struct orion_proof){.scope = ORION_PROOF_CONTEXT, .blocks = true});
    CHECK(is_free(ended));
    atomic_store(&gpu->role, ORION_ROLE_BE);
    atomic_store(&process->thread_begins, NULL);
}

static void *capture_own(void *unused)
{
    (void)unused;
    note_place();
    orion_capture_changing();
    orion_capture_changed(ORION_CAPTURE_BEGUN, own, CUDA_SUCCESS);
    return NULL;
}

/* Also of a thread that has submitted nothing. */
static void a_capture_ends_with_its_thread(void)
{
    atomic_store(&process->thread_begins, orion_thread_ends_watch);
    in_thread(capture_own);
    CHECK(atomic_load(&process->captures) == 0);
    atomic_store(&process->thread_begins, NULL);
}

int main(void)
{
    begin();
    a_thread_ends_with_work_in_its_stream();
    hp_stays_busy_when_a_thread_ends();
    threads_that_end_leave_no_records();
    a_record_ends_with_its_thread();
    a_capture_ends_with_its_thread();
    puts("thread_ends: ok");
    return 0;
}
