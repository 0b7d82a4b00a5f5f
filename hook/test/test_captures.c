/* Captures, on the simulated driver, through the hook's wrappers: however a capture ends, their count falls, and nothing
 * else lowers it; and no call of the hook's own invalidates a capture that another thread has just begun. */
#include "simulated_process.h"

#include <pthread.h>

#include "be/state.h"
#include "be/valve.h"
#include "core/core.h"
#include "streams/capture_origins.h"
#include "played_hp.h"
#include "until.h"

CUresult CUDAAPI cuStreamBeginCapture_v2_ptsz(CUstream origin, CUstreamCaptureMode mode); /* cuda.h declares one variant */

static CUstream stream;
static CUevent event;

static int captures(void) { return atomic_load(&process->captures); }

static CUstream new_stream(void)
{
    CUstream made;
    MUST(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
}

static CUstream capturing(void)
{
    CUstream made = new_stream();
    MUST(cuStreamBeginCapture(made, CU_STREAM_CAPTURE_MODE_RELAXED));
    return made;
}

static CUresult end_of(CUstream origin)
{
    CUgraph graph;
    CUresult result = cuStreamEndCapture(origin, &graph);
    if (result == CUDA_SUCCESS) MUST(cuGraphDestroy(graph));
    return result;
}

/* The hook gets to know a stream when something is submitted. */
static void become_known(CUstream known)
{
    struct orion_work work = {.stream = {known, false}, .identity = 1};
    orion_work_begin(&work);
    orion_work_end(&work, CUDA_SUCCESS);
}

static CUcontext new_context(void)
{
    CUcontext made;
#if CUDA_VERSION >= 13000
    MUST(cuCtxCreate(&made, NULL, 0, 0));
#else
    MUST(cuCtxCreate(&made, 0, 0));
#endif
    return made;
}

/* -- Ends ------------------------------------------------------------------------------------------------------------ */

static void an_end_that_fails_ends_only_its_own_capture(void)
{
    CUstream one = capturing(), other = capturing();
    CHECK(captures() == 2);
    CHECK(end_of(stream) == CUDA_ERROR_ILLEGAL_STATE && captures() == 2);
    MUST(end_of(one));
    CHECK(captures() == 1);
    CHECK(end_of(one) == CUDA_ERROR_ILLEGAL_STATE && captures() == 1);
    MUST(end_of(other));
    CHECK(captures() == 0);
}

static void a_capture_ends_with_its_stream(void)
{
    CUstream unknown = capturing(), known = new_stream();
    become_known(known);
    MUST(cuStreamBeginCapture(known, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(captures() == 2);
    MUST(cuStreamDestroy(unknown));
    CHECK(captures() == 1);
    MUST(cuStreamDestroy(known));
    CHECK(captures() == 0);
}

static void a_capture_of_an_unmanaged_process_ends_with_its_stream(void)
{
    CUstream before = capturing();
    atomic_store(&process->managed, 0);
    CUstream origin = capturing();
    MUST(cuStreamDestroy(origin));
    MUST(cuStreamDestroy(before));
    CHECK(captures() == 0);
    origin = capturing();
    atomic_store(&process->managed, 1); /* it joins during the capture */
    CHECK(captures() == 1);
    MUST(cuStreamDestroy(origin));
    CHECK(captures() == 0);
}

static void a_capture_outlives_a_stream_that_joined_it(void)
{
    CUstream origin = capturing(), other = capturing(), joined = new_stream();
    become_known(joined);
    MUST(cuEventRecord(event, origin));
    MUST(cuStreamWaitEvent(joined, event, 0));
    MUST(cuStreamDestroy(joined));
    CHECK(captures() == 2);
    CHECK(end_of(origin) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED && captures() == 1);
    MUST(end_of(other));
    CHECK(captures() == 0);
}

static void a_capture_ends_with_its_context(void)
{
    CUcontext context = new_context();
    capturing();
    MUST(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuCtxPopCurrent(NULL));
    CUstream elsewhere = capturing();
    CHECK(captures() == 3);
    MUST(cuCtxDestroy(context));
    CHECK(captures() == 1);
    MUST(end_of(elsewhere));
    CHECK(captures() == 0);
}

/* What a program does after an error. Captures in other contexts of the device go on. */
static void a_capture_ends_with_its_primary_context(void)
{
    CUcontext primary, other;
    other = new_context();
    CUstream elsewhere = capturing();
    MUST(cuCtxPopCurrent(NULL));
    capturing();
    MUST(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(captures() == 3);
    MUST(cuDevicePrimaryCtxReset(0));
    CHECK(captures() == 1);
    MUST(cuCtxSetCurrent(other));
    MUST(end_of(elsewhere));
    MUST(cuCtxDestroy(other));
    CHECK(captures() == 0);
    MUST(cuDevicePrimaryCtxRetain(&primary, 0));
    MUST(cuCtxSetCurrent(primary));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    stream = new_stream();
}

/* -- Beginnings ------------------------------------------------------------------------------------------------------ */

static void every_kind_of_capture_counts(void)
{
    CUgraph graph, same;
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(captures() == 2);
    MUST(cuStreamEndCapture(CU_STREAM_PER_THREAD, &same));
    MUST(cuGraphDestroy(same));
    CHECK(captures() == 1);
    MUST(cuStreamEndCapture(stream, &same));
    CHECK(captures() == 0 && same == graph);
    MUST(cuGraphDestroy(graph));
    CHECK(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS && captures() == 0);
}

/* Captures that find no room in the table count, until they end. */
static void more_captures_than_the_table_holds_count(void)
{
    enum { MANY = ORION_CAPTURE_ORIGINS + 4 };
    CUstream origin[MANY];
    for (int i = 0; i < MANY; i++) origin[i] = capturing();
    CHECK(captures() == MANY);
    for (int i = 0; i < MANY; i++) {
        MUST(end_of(origin[i]));
        CHECK(captures() == MANY - 1 - i);
    }
}

/* A stream may have the handle of one that ended unseen. */
static void a_handle_has_one_capture(void)
{
    struct orion_stream_name name = {stream, false};
    orion_capture_origin_began(process, name);
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(captures() == 1);
    MUST(end_of(stream));
    CHECK(captures() == 0);
}

/* The driver invalidates a capture upon a question about the stream's flags. So the hook asks later which streams the driver orders. */
static void a_stream_may_be_new_when_its_capture_begins(void)
{
    CUstream made;
    MUST(cuStreamCreate(&made, CU_STREAM_DEFAULT));
    MUST(cuStreamBeginCapture(made, CU_STREAM_CAPTURE_MODE_GLOBAL));
    become_known(made);
    become_known(made);
    MUST(end_of(made));
    struct orion_stream_name name = {made, false};
    CHECK(orion_stream_record_of(process, name)->order == ORION_ORDER_BLOCKING);
    MUST(cuStreamDestroy(made));
}

/* -- Threads --------------------------------------------------------------------------------------------------------- */

static void *capture_often(void *context)
{
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < 300; i++) {
        CUstream origin = capturing();
        CHECK(captures() >= 1);
        MUST(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
        CHECK(captures() >= 2);
        if (i % 2) MUST(end_of(origin));
        MUST(cuStreamDestroy(origin));
        CHECK(captures() >= 1);
        MUST(end_of(CU_STREAM_PER_THREAD));
    }
    return NULL;
}

static void threads_capture_at_the_same_time(void)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    CUcontext context;
    MUST(cuCtxGetCurrent(&context));
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, capture_often, context) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK(captures() == 0);
}

/* -- The hook's own calls -------------------------------------------------------------------------------------------- */

/* Runs while a capture forbids other threads unsafe calls, as if it had begun just after this thread looked at the count. */
static void beside_a_new_capture(void (*call)(void))
{
    CUstream origin = new_stream();
    MUST(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(atomic_exchange(&process->captures, 0) == 1);
    call();
    atomic_store(&process->captures, 1);
    MUST(end_of(origin));
}

static struct orion_stream_record *record(void)
{
    return orion_stream_record_of(process, (struct orion_stream_name){stream, false});
}

static void pin(void)
{
    orion_valve_ready(process, record());
    CHECK(orion_be(gpu)->valve.page.address != 0 && !atomic_load(&orion_be(gpu)->valve.refused));
}

static void wait_for_event(void)
{
    struct orion_proof proof = {.scope = ORION_PROOF_EVENT, .blocks = true, .event = event};
    orion_proof_begin(&proof);
    orion_proof_end(&proof, CUDA_SUCCESS);
}

static void wait_for_stream(void)
{
    struct orion_proof proof = {.scope = ORION_PROOF_STREAM, .blocks = true, .stream = {stream, false}};
    orion_proof_begin(&proof);
    orion_proof_end(&proof, CUDA_SUCCESS);
}

/* A busy hp holds the process's work, so a thread that waits for some of it asks whether that is done. */
static void the_hooks_own_calls_leave_other_captures_alone(void)
{
    hp_joins(gpu);
    ((struct orion_policy *)(uintptr_t)orion_gpu_policy(gpu))->kind = ORION_POLICY_GATE;
    beside_a_new_capture(pin);
    become_known(stream);
    MUST(cuEventRecord(event, stream));
    MUST(cuStreamSynchronize(stream));
    set_hp(gpu, ORION_BUSY);
    atomic_store(&orion_be(gpu)->in_flight_ns, 1);
    atomic_store(&orion_be(gpu)->valve.in_use, 1);
    UNTIL(orion_stops_would_block(process, gpu) == gpu);
    beside_a_new_capture(wait_for_event);
    beside_a_new_capture(wait_for_stream);
    atomic_store(&orion_be(gpu)->in_flight_ns, 0);
    set_hp(gpu, ORION_IDLE);
}

int main(void)
{
    begin_process("orion-sim 1\nkernel one duration_us=20\n");
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    stream = new_stream();
    an_end_that_fails_ends_only_its_own_capture();
    a_capture_ends_with_its_stream();
    a_capture_of_an_unmanaged_process_ends_with_its_stream();
    a_capture_outlives_a_stream_that_joined_it();
    a_capture_ends_with_its_context();
    a_capture_ends_with_its_primary_context();
    every_kind_of_capture_counts();
    more_captures_than_the_table_holds_count();
    a_handle_has_one_capture();
    a_stream_may_be_new_when_its_capture_begins();
    threads_capture_at_the_same_time();
    the_hooks_own_calls_leave_other_captures_alone();
    return 0;
}
