/* A be stream may be destroyed while work is queued in it. The work goes on, so it counts as in flight until it is complete. */
#include "check.h"

#include <pthread.h>

#include "be/state.h"
#include "be/window.h"
#include "core/core.h"
#include "core/lifetimes.h"
#include "fake_driver.h"
#include "streams/capture_origins.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define US ORION_MICROSECOND
#define COST (100 * US)
#define EVENTS 20000u

/* The clock of this test. The linker takes these functions instead of those of system.c. */
static uint64_t now = 1000 * ORION_SECOND;
uint64_t orion_now(void) { return now += US; }
void orion_sleep_precisely(uint64_t nanoseconds) { now += nanoseconds; }
void orion_futex_wake_all(const _Atomic uint32_t *word, bool shared) { (void)word, (void)shared; }
void orion_futex_wait(const _Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns, bool shared)
{
    (void)word, (void)value, (void)timeout_ns, (void)shared;
}

static struct orion_process *process;
static struct orion_gpu *gpu;
static CUstream captured; /* a stream that is being captured */
static enum { NONE, PENDING, COMPLETE } events[EVENTS];
static uintptr_t made;
static unsigned recorded, alive, destroyed; /* events, and streams */

static CUresult CUDAAPI make_event(CUevent *event, unsigned flags)
{
    (void)flags;
    CHECK(++made < EVENTS);
    *event = (CUevent)made;
    alive++;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI destroy_event(CUevent event)
{
    CHECK(event != NULL && alive > 0);
    events[(uintptr_t)event] = NONE;
    alive--;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI record_event(CUevent event, CUstream stream)
{
    CHECK(stream != captured);
    events[(uintptr_t)event] = PENDING;
    recorded++;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI query_event(CUevent event)
{
    CHECK(events[(uintptr_t)event] != NONE);
    return events[(uintptr_t)event] == COMPLETE ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
static CUresult CUDAAPI elapsed(float *milliseconds, CUevent start, CUevent end)
{
    CHECK(query_event(start) == CUDA_SUCCESS && query_event(end) == CUDA_SUCCESS);
    *milliseconds = 0;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    *status = stream == captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI destroy_stream(CUstream stream)
{
    CHECK(stream != NULL);
    destroyed++;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI primary_has_ended(CUdevice device, unsigned *flags, int *active)
{
    (void)device, (void)flags;
    *active = 0;
    return CUDA_SUCCESS;
}

static void complete_all(void)
{
    for (uintptr_t i = 1; i <= made; i++)
        if (events[i] == PENDING) events[i] = COMPLETE;
}

static uint64_t in_flight(void) { return atomic_load(&orion_be(gpu)->in_flight_ns); }

static CUstream stream_of(uintptr_t i) { return (CUstream)((i + 1) << 12); }
static struct orion_stream_record *record_of(uintptr_t i)
{
    struct orion_stream_record *stream_record = orion_stream_record_of(process, (struct orion_stream_name){stream_of(i), false});
    CHECK(stream_record != NULL);
    return stream_record;
}

static struct orion_stream_record *launch_in(struct orion_stream_record *stream_record)
{
    atomic_fetch_add(&stream_record->begun, 1);
    CHECK(orion_window_enter(process, stream_record, COST, UINT64_MAX));
    atomic_fetch_add(&stream_record->returned, 1);
    orion_window_launched(process, stream_record, COST, orion_now(), 0);
    return stream_record;
}
static struct orion_stream_record *launch(uintptr_t stream, unsigned times)
{
    struct orion_stream_record *stream_record = record_of(stream);
    for (unsigned i = 0; i < times; i++) launch_in(stream_record);
    return stream_record;
}

static void prove(struct orion_proof proof)
{
    orion_proof_begin(&proof);
    orion_proof_end(&proof, CUDA_SUCCESS);
}

static bool is_free(const struct orion_stream_record *stream_record)
{
    return atomic_load(&stream_record->state) == ORION_STREAM_RECORD_ENDED &&
           atomic_load(&stream_record->drained) == atomic_load(&stream_record->begun);
}

static void queued_work_counts_until_it_is_complete(void)
{
    struct orion_stream_record *ended = launch(0, 3);
    unsigned before = recorded;
    CHECK(recorded == 0);
    orion_stream_ending(stream_of(0));
    CHECK(in_flight() == 3 * COST && recorded == before + 1 && alive == 1);
    CHECK(record_of(0) != ended); /* the driver gives the handle again at once */
    CHECK(record_of(1) != ended);
    uint64_t gpu_ns = atomic_load(&gpu->record->gpu_ns);
    complete_all();
    orion_window_reap(process, gpu);
    CHECK(in_flight() == 0 && is_free(ended) && atomic_load(&gpu->record->gpu_ns) > gpu_ns);
    CHECK(record_of(2) == ended);
    for (uintptr_t i = 0; i < 3; i++) orion_stream_ending(stream_of(i));
    CHECK(recorded == before + 1 && is_free(ended)); /* nothing was queued in these */
}

/* Without another look, the record would be free only when a launch waits for the window. */
static void the_end_of_a_stream_frees_the_records_of_earlier_ones(void)
{
    struct orion_stream_record *first = launch(0, 1);
    orion_stream_ending(stream_of(0));
    complete_all();
    now += 2 * ORION_MILLISECOND;
    launch(1, 1);
    orion_stream_ending(stream_of(1));
    CHECK(is_free(first) && in_flight() == COST);
    complete_all();
    orion_window_reap(process, gpu);
    CHECK(in_flight() == 0);
}

static void a_full_ring_loses_nothing(void)
{
    struct orion_stream_record *stream_record = launch(0, 40 * ORION_CHUNKS);
    CHECK(orion_be_stream_record(stream_record)->chunks.count == ORION_CHUNKS);
    CHECK(orion_be_stream_record(stream_record)->chunks.open_ns > 0);
    orion_stream_ending(stream_of(0));
    CHECK(in_flight() == 40 * ORION_CHUNKS * COST && !is_free(stream_record));
    complete_all();
    orion_window_reap(process, gpu);
    CHECK(in_flight() == 0 && is_free(stream_record));
}

static void proven_work_needs_no_event(void)
{
    struct orion_stream_record *stream_record = launch(0, 1);
    unsigned before = recorded;
    prove((struct orion_proof){.scope = ORION_PROOF_STREAM, .blocks = true, .stream = {stream_of(0), false}});
    orion_stream_ending(stream_of(0));
    CHECK(recorded == before && in_flight() == 0 && is_free(stream_record));
    launch(0, 1);
    orion_stream_ending(stream_of(0));
    CHECK(in_flight() == COST && !is_free(stream_record));
    prove((struct orion_proof){.scope = ORION_PROOF_CONTEXT, .blocks = true});
    CHECK(in_flight() == 0 && is_free(stream_record));
}

static void a_wait_for_the_context_proves_the_work_of_all_destroyed_streams(void)
{
    for (uintptr_t i = 0; i < 50; i++) launch(i, 1), orion_stream_ending(stream_of(i));
    CHECK(in_flight() == 50 * COST);
    complete_all();
    prove((struct orion_proof){.scope = ORION_PROOF_CONTEXT, .blocks = true});
    CHECK(in_flight() == 0);
}

/* An event that is recorded in a capture is never reached. */
static void a_stream_that_is_captured_gets_no_event(void)
{
    struct orion_stream_record *stream_record = launch(0, 1);
    unsigned before = recorded;
    captured = stream_of(0);
    orion_capture_origin_began(process, (struct orion_stream_name){stream_of(0), false});
    orion_stream_ending(stream_of(0));
    captured = NULL;
    CHECK(atomic_load(&process->captures) == 0);
    CHECK(recorded == before && in_flight() == 0 && is_free(stream_record));
}

static void work_that_is_stuck_is_forgotten(void)
{
    struct orion_stream_record *stream_record = launch(0, 1), *other = record_of(1);
    orion_stream_ending(stream_of(0));
    while (!orion_window_enter(process, other, COST, 0)) {}
    orion_window_leave(gpu, COST);
    CHECK(orion_window_stuck() == 1 && in_flight() == 0);
    orion_window_reap(process, gpu);
    CHECK(is_free(stream_record));
    orion_stream_ending(stream_of(1));
}

/* The context destroys its events itself. */
static void contexts_end(void)
{
    struct orion_stream_record *stream_record = launch(0, 1);
    orion_stream_ending(stream_of(0));
    CHECK(in_flight() == COST);
    unsigned before = alive;
    orion_context_ending(FAKE_CONTEXT);
    CHECK(in_flight() == 0 && is_free(stream_record) && alive == before);
    for (uintptr_t i = 1; i <= made; i++) events[i] = NONE;
    alive = 0;
    orion_context_ended();
    launch(0, 1);
    orion_stream_ending(stream_of(0));
    complete_all();
    orion_window_reap(process, gpu);
    CHECK(in_flight() == 0 && orion_be(gpu)->clock.base != NULL && alive == 1);
    launch(0, 1);
    orion_stream_ending(stream_of(0));
    orion_primary_ending(0);
    CHECK(in_flight() == 0 && alive == 0);
    orion_context_ended();
}

/* The driver would keep the context on the GPU. */
static void a_stream_whose_work_may_be_held_is_destroyed_when_it_is_complete(void)
{
    struct orion_stream_record *stream_record = launch(0, 1);
    unsigned before = destroyed;
    atomic_store(&orion_be(gpu)->valve.in_use, 1);
    CHECK(orion_stream_ending(stream_of(0)));
    orion_window_reap(process, gpu);
    CHECK(destroyed == before && !is_free(stream_record));
    complete_all();
    orion_window_reap(process, gpu);
    CHECK(destroyed == before + 1 && is_free(stream_record));
    atomic_store(&orion_be(gpu)->valve.in_use, 1);
    launch(0, 1);
    prove((struct orion_proof){.scope = ORION_PROOF_STREAM, .blocks = true, .stream = {stream_of(0), false}});
    CHECK(!orion_stream_ending(stream_of(0))); /* the work is complete */
    CHECK(destroyed == before + 1 && in_flight() == 0);
}

static void only_some_streams_are_kept(void)
{
    unsigned before = destroyed, kept = 0;
    atomic_store(&orion_be(gpu)->valve.in_use, 1);
    for (uintptr_t i = 0; i < 200; i++) {
        launch(i, 1);
        kept += orion_stream_ending(stream_of(i));
    }
    CHECK(kept == 64 && destroyed == before);
    complete_all();
    orion_window_reap(process, gpu);
    CHECK(destroyed == before + 64 && in_flight() == 0);
}

static void kept_streams_end_with_their_context(void)
{
    unsigned before = destroyed;
    for (int primary = 0; primary < 2; primary++) {
        struct orion_stream_record *stream_record = launch(0, 1);
        atomic_store(&orion_be(gpu)->valve.in_use, 1);
        CHECK(orion_stream_ending(stream_of(0)));
        if (primary) orion_primary_ending(0);
        else orion_context_ending(FAKE_CONTEXT);
        orion_context_ended();
        CHECK(is_free(stream_record) && destroyed == before + (unsigned)primary); /* a context destroys its streams itself */
        for (uintptr_t i = 1; i <= made; i++) events[i] = NONE;
        alive = 0;
    }
    CHECK(orion_be(gpu)->kept_streams == 0);
}

/* Streams beyond the records share one, whose work is forgotten by its expected time. */
static void records_run_out_for_as_long_as_the_work_runs(void)
{
    const unsigned many = ORION_STREAM_RECORDS + 100;
    for (uintptr_t i = 0; i < many; i++) launch(i, 1), orion_stream_ending(stream_of(i));
    CHECK(in_flight() == many * COST);
    CHECK(orion_stream_record_is_shared(process, record_of(many)));
    complete_all();
    orion_window_reap(process, gpu);
    CHECK(in_flight() < many * COST && alive <= 1);
    orion_stream_ending(stream_of(many));
    CHECK(!orion_stream_record_is_shared(process, record_of(many + 1)));
}

/* -- Threads --------------------------------------------------------------------------------------------------------- */

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

int main(void)
{
    gpu = fake_gpu(ORION_ROLE_BE);
    process = orion_process_started();
    orion_driver.cuEventCreate = make_event;
    orion_driver.cuEventDestroy_v2 = destroy_event;
    orion_driver.cuEventRecord = record_event;
    orion_driver.cuEventQuery = query_event;
    orion_driver.cuEventElapsedTime_v2 = elapsed;
    orion_driver.cuStreamIsCapturing = is_capturing;
    orion_driver.cuStreamDestroy_v2 = destroy_stream;
    orion_driver.cuDevicePrimaryCtxGetState = primary_has_ended;
    ((struct orion_policy *)(uintptr_t)orion_gpu_policy(gpu))->kind = ORION_POLICY_GATE;
    ((struct orion_grant *)(uintptr_t)orion_gpu_grant(gpu))->window_share_ns = 500 * US;
    queued_work_counts_until_it_is_complete();
    the_end_of_a_stream_frees_the_records_of_earlier_ones();
    a_full_ring_loses_nothing();
    proven_work_needs_no_event();
    a_wait_for_the_context_proves_the_work_of_all_destroyed_streams();
    a_stream_that_is_captured_gets_no_event();
    work_that_is_stuck_is_forgotten();
    contexts_end();
    a_thread_ends_with_work_in_its_stream();
    hp_stays_busy_when_a_thread_ends();
    threads_that_end_leave_no_records();
    a_stream_whose_work_may_be_held_is_destroyed_when_it_is_complete();
    only_some_streams_are_kept();
    kept_streams_end_with_their_context();
    atomic_store(&orion_be(gpu)->valve.in_use, 0);
    records_run_out_for_as_long_as_the_work_runs();
    puts("stream_ends: ok");
    return 0;
}
