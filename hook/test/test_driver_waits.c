/* Which launches are held on the CPU because a stream that the driver orders with theirs waits for another stream. */
#include "ordered_streams.h"

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

int main(void)
{
    begin_streams();
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
    puts("driver_waits: ok");
    return 0;
}
