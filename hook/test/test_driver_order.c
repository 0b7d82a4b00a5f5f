/* Which launches are held on the CPU because the driver orders their streams: those that follow work in flight of the other kind of
 * stream, and some behind them. The test begins and ends work itself; no thread of the hook looks at it. */
#include "simulated_process.h"

#include "be/chunks.h"
#include "be/driver_order.h"
#include "be/window.h"
#include "core/core.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define MOST_HELD 1000u

static CUstream blocking, other, non_blocking, source, middle; /* the last three are non-blocking */

static struct orion_stream_record *record_of(CUstream stream)
{
    struct orion_stream_record *stream_record = orion_stream_record_of(process, (struct orion_stream_name){stream, false});
    CHECK(stream_record != NULL);
    return stream_record;
}

/* A launch that stays in flight. Returns whether it is held. */
static bool launch(CUstream stream)
{
    bool held = orion_driver_order_matters(process, record_of(stream));
    atomic_fetch_add(&record_of(stream)->begun, 1);
    orion_driver_order_begun(record_of(stream));
    atomic_fetch_add(&record_of(stream)->returned, 1);
    return held;
}

static void complete(CUstream stream) { orion_stream_record_prove(record_of(stream), atomic_load(&record_of(stream)->begun)); }

/* Completes all work, and launches until nothing is held. */
static unsigned settle(void)
{
    unsigned held = 0;
    complete(NULL), complete(blocking), complete(other), complete(CU_STREAM_PER_THREAD), complete(source), complete(middle);
    while (launch(non_blocking)) CHECK(++held < MOST_HELD);
    return held;
}

static void streams_of_one_kind_are_not_held(void)
{
    for (unsigned i = 0; i < 10; i++) CHECK(!launch(NULL) && !launch(non_blocking));
    settle();
    for (unsigned i = 0; i < 10; i++) CHECK(!launch(blocking) && !launch(other) && !launch(non_blocking));
    settle();
}

static void a_launch_behind_work_of_the_other_kind_is_held(CUstream first, CUstream second)
{
    CHECK(!launch(first));
    CHECK(launch(second));
    CHECK(launch(non_blocking)); /* like those behind it */
    CHECK(settle() > 10);
    CHECK(!launch(second)); /* the driver's wait is in the stream already */
    settle();
}

static void completed_work_holds_nothing(CUstream first, CUstream second)
{
    CHECK(!launch(first));
    complete(first);
    CHECK(!launch(second));
    settle();
}

/* Of another thread, which waits until its launch may begin. */
static void a_launch_that_begins_after_a_look_is_seen_by_the_next(void)
{
    CHECK(!orion_driver_order_matters(process, record_of(blocking)));
    CHECK(!launch(NULL));
    complete(NULL);
    atomic_fetch_add(&record_of(blocking)->begun, 1);
    orion_driver_order_begun(record_of(blocking));
    CHECK(launch(NULL));
    settle();
}

/* What a wrapper calls for an event, a host function, a write of a word, memory of a pool. */
static void operate(CUstream stream) { orion_operation_begin((struct orion_stream_name){stream, false}); }

static void an_operation_waits_as_a_launch_does(CUstream first, CUstream second)
{
    CHECK(!launch(first));
    operate(second);
    CHECK(launch(first)); /* it waits for the operation */
    settle();
}

static void an_operation_behind_nothing_holds_nothing(void)
{
    CHECK(!launch(non_blocking));
    operate(NULL);
    CHECK(!launch(blocking) && !launch(other));
    settle();
}

static void record(CUevent event, CUstream stream)
{
    struct orion_recording recording = {.event = event, .stream = {stream, false}};
    orion_event_recording(&recording);
    orion_event_recorded(&recording, CUDA_SUCCESS);
}

/* The stream waits for the work so far of another one. */
static void await(CUstream stream, CUstream awaited)
{
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    record(event, awaited);
    orion_event_awaited(event, (struct orion_stream_name){stream, false});
    orion_event_ending(event);
    MUST(cuEventDestroy(event));
}

/* The stream that waits has no launch of its own. */
static void a_launch_behind_a_wait_for_another_stream_is_held(CUstream first, CUstream second)
{
    CHECK(!launch(source));
    await(first, source);
    CHECK(launch(second));
    settle();
}

static void a_launch_behind_a_wait_of_a_wait_is_held(CUstream first, CUstream second)
{
    CHECK(!launch(source));
    await(middle, source);
    await(first, middle);
    CHECK(launch(second));
    settle();
}

static void a_wait_ends_with_what_it_awaits(CUstream first, CUstream second)
{
    CHECK(!launch(source));
    await(first, source);
    complete(source);
    CHECK(!launch(source)); /* later work does not matter */
    CHECK(!launch(second));
    settle();
}

/* Nothing has proven yet that the awaited work is complete. */
static void a_synchronised_stream_waits_no_more(CUstream first, CUstream second)
{
    struct orion_proof proof = {.scope = ORION_PROOF_STREAM, .blocks = true, .stream = {first, false}};
    CHECK(!launch(source));
    await(first, source);
    orion_proof_begin(&proof);
    orion_proof_end(&proof, CUDA_SUCCESS);
    CHECK(!launch(second));
    settle();
}

static void synchronise(CUevent event)
{
    struct orion_proof proof = {.scope = ORION_PROOF_EVENT, .blocks = true, .event = event};
    orion_proof_begin(&proof);
    orion_proof_end(&proof, CUDA_SUCCESS);
}

static void a_wait_before_an_event_is_over_with_it(CUstream first, CUstream second)
{
    CUevent before, behind;
    MUST(cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventCreate(&behind, CU_EVENT_DISABLE_TIMING));
    CHECK(!launch(source));
    record(before, first);
    await(first, source);
    record(behind, first);
    synchronise(behind);
    CHECK(!launch(second));
    settle();
    CHECK(!launch(source));
    record(before, first);
    await(first, source);
    synchronise(before);
    CHECK(launch(second));
    settle();
    orion_event_ending(before), orion_event_ending(behind);
    MUST(cuEventDestroy(before));
    MUST(cuEventDestroy(behind));
}

static void a_stream_does_not_wait_for_itself(CUstream first, CUstream second)
{
    CHECK(!launch(first));
    await(first, first);
    complete(first);
    CHECK(!launch(second));
    CHECK(!launch(source));
    await(first, source);
    await(first, first); /* the stream still waits for the other one */
    CHECK(launch(second));
    settle();
}

static CUresult CUDAAPI is_complete(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI takes_unknown(float *milliseconds, CUevent start, CUevent end)
{
    (void)milliseconds, (void)start, (void)end;
    return CUDA_ERROR_NOT_READY;
}

/* No call of the program proves that the awaited work is complete. In this test the hook's own calls are wrapped, too. */
static void a_wait_ends_with_the_chunk_that_it_awaits(CUstream first, CUstream second)
{
    CHECK(!launch(source));
    await(first, source);
    CHECK(orion_ledger_try_lock(gpu));
    orion_chunks_launched(process, record_of(source), ORION_MICROSECOND, orion_now(), false);
    orion_chunks_close(process, record_of(source));
    orion_ledger_unlock(gpu);
    orion_driver.cuEventQuery = is_complete;
    orion_driver.cuEventElapsedTime_v2 = takes_unknown;
    orion_window_reap(process, gpu);
    CHECK(!launch(second));
    settle();
}

static void a_wait_that_is_over_hides_no_other(CUstream first, CUstream second)
{
    CHECK(!launch(source) && !launch(middle));
    await(first, source);
    await(first, middle);
    complete(middle);
    CHECK(launch(second));
    settle();
}

static void a_stream_is_awaited_with_its_work_and_its_wait(CUstream first, CUstream second)
{
    CHECK(!launch(source) && !launch(middle));
    await(middle, source);
    await(first, middle);
    complete(middle);
    CHECK(launch(second)); /* the event comes behind the wait, too */
    settle();
    CHECK(!launch(source) && !launch(middle));
    await(middle, source);
    await(first, middle);
    complete(source);
    CHECK(launch(second));
    settle();
}

/* One more than there is room for: it counts no longer than the others. */
static void many_waits_end_with_the_longest(CUstream first, CUstream second)
{
    CUstream awaited[ORION_AWAITED + 1];
    for (unsigned i = 0; i <= ORION_AWAITED; i++) {
        MUST(cuStreamCreate(&awaited[i], CU_STREAM_NON_BLOCKING));
        CHECK(!launch(awaited[i]));
        await(first, awaited[i]);
        await(first, awaited[i]); /* takes no more room */
    }
    for (unsigned i = 0; i < ORION_AWAITED; i++) {
        CHECK(launch(second));
        settle();
        complete(awaited[i]);
        operate(first); /* so that the next launch looks again */
    }
    CHECK(!launch(second));
    settle();
    for (unsigned i = 0; i <= ORION_AWAITED; i++) {
        orion_stream_ending(awaited[i]);
        MUST(cuStreamDestroy(awaited[i]));
    }
}

/* Another thread puts a wait into the stream while a call of this one proves that the stream is empty. */
static void a_wait_behind_a_synchronise_stays(CUstream first, CUstream second)
{
    struct orion_proof proof = {.scope = ORION_PROOF_STREAM, .blocks = true, .stream = {first, false}};
    CHECK(!launch(source));
    orion_proof_begin(&proof);
    await(first, source);
    orion_proof_end(&proof, CUDA_SUCCESS);
    CHECK(launch(second));
    settle();
}

/* Another stream gets the handle and the record of one that has ended. */
static void a_new_stream_is_asked_again(void)
{
    CUstream ended = other;
    MUST(cuStreamDestroy(ended));
    orion_stream_ending(ended);
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(!launch(NULL) && !launch(other));
    settle();
}

static void contexts_have_an_order_of_their_own(void)
{
    CUcontext context, second;
    MUST(cuCtxGetCurrent(&context));
    MUST(cuCtxCreate(&second, NULL, 0, 0));
    CHECK(!launch(NULL));
    MUST(cuCtxSetCurrent(context));
    CHECK(!launch(blocking));
    MUST(cuCtxSetCurrent(second));
    CHECK(launch(CU_STREAM_PER_THREAD));
    complete(NULL), complete(CU_STREAM_PER_THREAD);
    orion_context_ending(second);
    MUST(cuCtxDestroy(second));
    orion_context_destroyed(second, CUDA_SUCCESS);
    MUST(cuCtxSetCurrent(context));
    settle();
}

static bool has_record(CUstream stream)
{
    ORION_EACH_STREAM_RECORD(each, process, NULL)
        if (atomic_load(&each->state) == ORION_STREAM_RECORD_READY && each->key == (uint64_t)(uintptr_t)stream) return true;
    return false;
}

static void operations_cost_no_look_up_without_be(void)
{
    CUstream unused;
    MUST(cuStreamCreate(&unused, CU_STREAM_DEFAULT));
    atomic_store(&gpu->role, ORION_ROLE_HP);
    operate(unused);
    await(unused, source);
    CHECK(!has_record(unused));
    atomic_store(&gpu->role, ORION_ROLE_BE);
    operate(unused);
    CHECK(has_record(unused));
    orion_stream_ending(unused);
    MUST(cuStreamDestroy(unused));
}

/* The new stream gets the record of the one that ends. */
static void replace_other(void)
{
    struct orion_stream_record *ended = record_of(other);
    orion_stream_ending(other);
    MUST(cuStreamDestroy(other));
    MUST(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    CHECK(record_of(other) == ended);
}

static void a_new_stream_has_not_waited_or_looked(void)
{
    CHECK(!launch(source));
    await(other, source);
    replace_other();
    CHECK(!launch(NULL));
    while (launch(non_blocking)) {}
    CHECK(launch(other)); /* its first look */
    while (launch(non_blocking)) {}
    complete(other);
    replace_other();
    CHECK(launch(other));
    settle();
}

static void each_behind_the_other(void (*test)(CUstream first, CUstream second), CUstream stream)
{
    test(NULL, stream);
    test(stream, NULL);
}

int main(void)
{
    begin_process("orion-sim 1\nkernel one duration_us=20\n");
    MUST(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    MUST(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    MUST(cuStreamCreate(&non_blocking, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&source, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&middle, CU_STREAM_NON_BLOCKING));
    streams_of_one_kind_are_not_held();
    each_behind_the_other(a_launch_behind_work_of_the_other_kind_is_held, blocking);
    a_launch_behind_work_of_the_other_kind_is_held(NULL, CU_STREAM_PER_THREAD);
    each_behind_the_other(completed_work_holds_nothing, other);
    a_launch_that_begins_after_a_look_is_seen_by_the_next();
    each_behind_the_other(an_operation_waits_as_a_launch_does, blocking);
    an_operation_behind_nothing_holds_nothing();
    each_behind_the_other(a_launch_behind_a_wait_for_another_stream_is_held, blocking);
    each_behind_the_other(a_launch_behind_a_wait_of_a_wait_is_held, blocking);
    each_behind_the_other(a_wait_ends_with_what_it_awaits, blocking);
    each_behind_the_other(a_synchronised_stream_waits_no_more, blocking);
    each_behind_the_other(a_wait_ends_with_the_chunk_that_it_awaits, blocking);
    each_behind_the_other(a_wait_that_is_over_hides_no_other, blocking);
    each_behind_the_other(a_stream_is_awaited_with_its_work_and_its_wait, blocking);
    each_behind_the_other(many_waits_end_with_the_longest, blocking);
    each_behind_the_other(a_wait_behind_a_synchronise_stays, blocking);
    each_behind_the_other(a_wait_before_an_event_is_over_with_it, blocking);
    each_behind_the_other(a_stream_does_not_wait_for_itself, blocking);
    a_new_stream_has_not_waited_or_looked();
    contexts_have_an_order_of_their_own();
    operations_cost_no_look_up_without_be();
    a_new_stream_is_asked_again();
    puts("driver_order: ok");
    return 0;
}
