/* Which launches are held on the CPU because the driver orders their streams: those that follow work in flight of the other kind of
 * stream, and some behind them. The test begins and ends work itself; no thread of the hook looks at it. */
#include "simulated_process.h"

#include "be/driver_order.h"
#include "core/core.h"
#include "streams/stream_records.h"

#define MOST_HELD 1000u

static CUstream blocking, other, non_blocking;

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
    return held;
}

static void complete(CUstream stream) { orion_stream_record_prove(record_of(stream), atomic_load(&record_of(stream)->begun)); }

/* Completes all work, and launches until nothing is held. */
static unsigned settle(void)
{
    unsigned held = 0;
    complete(NULL), complete(blocking), complete(other), complete(CU_STREAM_PER_THREAD);
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
static void operate(CUstream stream)
{
    struct orion_work work = {.stream = {stream, false}, .identity = ORION_IDENTITY_NONE};
    orion_work_begin(&work);
    orion_work_end(&work, CUDA_SUCCESS);
}

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

/* The legacy stream has no launch of its own. */
static void a_launch_behind_a_wait_for_another_stream_is_held(CUstream first, CUstream second)
{
    CUevent event;
    struct orion_recording recording = {.stream = {non_blocking, false}};
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    recording.event = event;
    CHECK(!launch(non_blocking));
    orion_event_recording(&recording);
    orion_event_recorded(&recording, CUDA_SUCCESS);
    orion_event_awaited(event, (struct orion_stream_name){first, false});
    operate(first);
    CHECK(launch(second));
    settle();
    complete(non_blocking);
    CHECK(!launch(first));
    complete(first); /* and so the wait before it */
    CHECK(!launch(non_blocking));
    CHECK(!launch(second));
    settle();
    orion_event_ending(event);
    MUST(cuEventDestroy(event));
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

int main(void)
{
    begin_process("orion-sim 1\nkernel one duration_us=20\n");
    MUST(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    MUST(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    MUST(cuStreamCreate(&non_blocking, CU_STREAM_NON_BLOCKING));
    streams_of_one_kind_are_not_held();
    a_launch_behind_work_of_the_other_kind_is_held(NULL, blocking);
    a_launch_behind_work_of_the_other_kind_is_held(blocking, NULL);
    a_launch_behind_work_of_the_other_kind_is_held(NULL, CU_STREAM_PER_THREAD);
    completed_work_holds_nothing(NULL, other);
    completed_work_holds_nothing(other, NULL);
    a_launch_that_begins_after_a_look_is_seen_by_the_next();
    an_operation_waits_as_a_launch_does(NULL, blocking);
    an_operation_waits_as_a_launch_does(blocking, NULL);
    an_operation_behind_nothing_holds_nothing();
    a_launch_behind_a_wait_for_another_stream_is_held(NULL, blocking);
    a_launch_behind_a_wait_for_another_stream_is_held(blocking, NULL);
    a_new_stream_is_asked_again();
    puts("driver_order: ok");
    return 0;
}
