/* Which launches are held on the CPU because the driver orders their streams: those that follow work in flight of the other kind of
 * stream. */
#include "ordered_streams.h"

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

int main(void)
{
    begin_streams();
    streams_of_one_kind_are_not_held();
    each_behind_the_other(a_launch_behind_work_of_the_other_kind_is_held, blocking);
    a_launch_behind_work_of_the_other_kind_is_held(NULL, CU_STREAM_PER_THREAD);
    each_behind_the_other(completed_work_holds_nothing, other);
    a_launch_that_begins_after_a_look_is_seen_by_the_next();
    each_behind_the_other(an_operation_waits_as_a_launch_does, blocking);
    an_operation_behind_nothing_holds_nothing();
    a_new_stream_has_not_waited_or_looked();
    contexts_have_an_order_of_their_own();
    operations_cost_no_look_up_without_be();
    a_new_stream_is_asked_again();
    puts("driver_order: ok");
    return 0;
}
