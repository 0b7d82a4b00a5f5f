/* A be stream may be destroyed while work is queued in it. The work goes on, so it counts as in flight until it is complete. */
#include "ending_streams.h"

#include "be/chunks.h"
#include "be/in_flight.h"
#include "streams/capture.h"
#include "streams/capture_origins.h"

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

static void close_all(struct orion_stream_record *own)
{
    CHECK(orion_ledger_try_lock(gpu));
    orion_in_flight_close(process, own);
    orion_ledger_unlock(gpu);
}

/* A thread with the ledger may be held in a driver call for longer than the end of a stream waits for it. */
static void a_stream_that_ends_while_the_ledger_is_busy_is_not_used_any_more(void)
{
    CHECK(orion_ledger_try_lock(gpu));
    struct orion_stream_record *ended = launch(0, 1);
    orion_stream_ending(stream_of(0));
    orion_ledger_unlock(gpu);
    gone = stream_of(0);
    CHECK(!is_free(ended) && record_of(0) != ended && in_flight() == COST);
    struct orion_stream_record *other = launch(1, 1);
    orion_window_reap(process, gpu); /* the work of the stream is now in its open chunk */
    close_all(other);
    complete_all();
    now += ORION_SECOND; /* no event is behind its work, which is complete by its expected time */
    orion_window_reap(process, gpu);
    orion_window_reap(process, gpu);
    CHECK(in_flight() == 0 && is_free(ended));
    gone = NULL;
    for (uintptr_t i = 0; i < 2; i++) orion_stream_ending(stream_of(i));
}

static void while_a_capture_begins_only_the_own_stream_gets_an_event(void)
{
    struct orion_stream_record *other = launch(1, 1), *own = launch(0, 1);
    unsigned before = recorded;
    orion_capture_changing(); /* of the other stream; the driver may have begun it, and no call has said so yet */
    captured = stream_of(1);
    close_all(own);
    CHECK(recorded == before + 1);
    captured = NULL;
    orion_capture_changed(ORION_CAPTURE_BEGUN, (struct orion_stream_name){stream_of(1), false}, CUDA_ERROR_UNKNOWN);
    close_all(own);
    CHECK(recorded == before + 2 && orion_be_stream_record(other)->chunks.open_ns == 0);
    complete_all();
    for (uintptr_t i = 0; i < 2; i++) orion_stream_ending(stream_of(i));
    orion_window_reap(process, gpu);
    CHECK(in_flight() == 0);
}

/* Their events may end at any time. */
static void a_wait_for_the_window_uses_no_event_while_contexts_end(void)
{
    struct orion_stream_record *own = launch(0, 1);
    close_all(own);
    launch(0, 1);
    unsigned recorded_before = recorded, queried_before = queried;
    orion_forbid_touch(process);
    CHECK(!orion_window_enter(process, own, COST, COST));
    CHECK(recorded == recorded_before && queried == queried_before && in_flight() == 2 * COST);
    orion_allow_touch(process);
    CHECK(!orion_window_enter(process, own, COST, COST));
    CHECK(recorded > recorded_before && queried > queried_before);
    orion_stream_ending(stream_of(0));
    complete_all();
    orion_window_reap(process, gpu);
    CHECK(in_flight() == 0);
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

/* The end of another context may take longer than a second, and says nothing about the graph whose pieces wait meanwhile. */
static void a_long_end_of_a_context_blames_no_graph(void)
{
    struct orion_stream_record *other = record_of(1);
    uint32_t stuck = orion_window_stuck();
    launch(0, 1);
    orion_forbid_touch(process);
    while (!orion_window_enter(process, other, COST, 0)) {}
    orion_allow_touch(process);
    CHECK(orion_window_stuck() == stuck);
    orion_window_leave(gpu, COST);
    orion_stream_ending(stream_of(0));
    orion_stream_ending(stream_of(1));
    complete_all();
    orion_window_reap(process, gpu);
    CHECK(in_flight() == 0);
}

/* The context destroys its events itself. */
static void contexts_end(void)
{
    struct orion_stream_record *stream_record = launch(0, 1);
    orion_stream_ending(stream_of(0));
    CHECK(in_flight() == COST);
    orion_context_ending(FAKE_CONTEXT);
    orion_context_destroyed(FAKE_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
    CHECK(in_flight() == COST && !is_free(stream_record));
    orion_context_ending(FAKE_CONTEXT);
    for (uintptr_t i = 1; i <= made; i++) events[i] = NONE;
    alive = 0;
    CHECK(in_flight() == COST);
    orion_context_destroyed(FAKE_CONTEXT, CUDA_SUCCESS);
    CHECK(in_flight() == 0 && is_free(stream_record));
    struct orion_stream_record *old = launch(0, 1);
    orion_context_ending(FAKE_CONTEXT);
    orion_context_destroyed(FAKE_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
    CHECK(record_of(0) == old);
    orion_context_ending(FAKE_CONTEXT);
    stream_record = record_of(0); /* a new context and a new stream get the handles before the call returns */
    CHECK(stream_record != old);
    orion_context_destroyed(FAKE_CONTEXT, CUDA_SUCCESS);
    CHECK(in_flight() == 0 && record_of(0) == stream_record);
    for (uintptr_t i = 1; i <= made; i++) events[i] = NONE;
    alive = 0;
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

static CUcontext current;
static CUresult CUDAAPI get_current(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

/* cuCtxAttach raises the usage count of a context, so cuCtxDetach need not end it. */
static void a_context_that_is_detached_ends_with_the_last_use(void)
{
    orion_driver.cuCtxGetCurrent = get_current;
    current = FAKE_CONTEXT;
    struct orion_stream_record *stream_record = launch(0, 1);
    orion_context_detaching();
    orion_context_detached(FAKE_CONTEXT, CUDA_SUCCESS);
    CHECK(in_flight() == COST && record_of(0) == stream_record);
    orion_context_detaching();
    current = NULL; /* the driver takes a context that has ended from the thread's stack */
    orion_context_detached(FAKE_CONTEXT, CUDA_SUCCESS);
    CHECK(in_flight() == 0 && is_free(stream_record));
    current = FAKE_CONTEXT;
    alive = 0;
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

/* Threads and handlers may launch while the process exits. The contexts are there until the driver's own handler. */
static void launches_of_a_process_that_exits_see_their_work_end(void)
{
    struct orion_stream_record *own = launch(0, 1);
    close_all(own);
    complete_all();
    uint64_t held = in_flight();
    atomic_store(&process->gpu_count, 1);
    orion_process_ending();
    CHECK(in_flight() == held);
    CHECK(!orion_window_enter(process, own, COST, COST) && in_flight() < held);
}

int main(void)
{
    begin();
    queued_work_counts_until_it_is_complete();
    the_end_of_a_stream_frees_the_records_of_earlier_ones();
    a_full_ring_loses_nothing();
    proven_work_needs_no_event();
    a_wait_for_the_context_proves_the_work_of_all_destroyed_streams();
    a_stream_that_is_captured_gets_no_event();
    a_stream_that_ends_while_the_ledger_is_busy_is_not_used_any_more();
    while_a_capture_begins_only_the_own_stream_gets_an_event();
    a_wait_for_the_window_uses_no_event_while_contexts_end();
    work_that_is_stuck_is_forgotten();
    a_long_end_of_a_context_blames_no_graph();
    contexts_end();
    a_context_that_is_detached_ends_with_the_last_use();
    records_run_out_for_as_long_as_the_work_runs();
    launches_of_a_process_that_exits_see_their_work_end();
    puts("stream_ends: ok");
    return 0;
}
