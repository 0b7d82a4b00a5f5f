/* What a client waits for must not depend on what other clients do meanwhile. */
#include "scenarios.h"
#include "threads.h"

static _Atomic int has_synchronised;
static uint64_t work_ends;
/* Once hp's work is complete, another client's stream may get the record of the stream that hp has destroyed. */
static void makes_streams(void)
{
    while (now() < work_ends - 5 * MS) {}
    for (int i = 0; i < 450 && !has_synchronised; i++) {
        CUstream stream;
        DONE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        launch(stream, 20);
    }
}
static void synchronises_beside_new_streams(void)
{
    CUstream stream;
    DONE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    launch(NULL, 0);
    work_ends = now() + 100 * MS;
    launch(stream, 100);
    DONE(cuStreamDestroy(stream));
    while (now() < work_ends - 70 * MS) {} /* meanwhile the drain thread takes the event of the work's end */
    pthread_t be[2] = {in_thread(BE, makes_streams), in_thread(BE, makes_streams)};
    DONE(cuCtxSynchronize());
    CHECK(now() < work_ends + 700 * MS);
    has_synchronised = 1;
    for (int i = 0; i < 2; i++) pthread_join(be[i], NULL);
}
void a_context_synchronise_waits_for_no_new_stream_of_another_client(void)
{
    CHECK(start(2) == 0);
    CHECK(set_policy(ORION_SCHEDULER_NONE, 1000) == 0);
    all_of(HP, synchronises_beside_new_streams);
}

/* A stream that waits, and has launched nothing that is not complete. */
static CUstream others_stream;
static void waits_for_an_event(CUstream stream)
{
    CUevent event;
    DONE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    launch(others_stream, 30);
    DONE(cuEventRecord(event, others_stream));
    DONE(cuStreamWaitEvent(stream, event, 0));
    DONE(cuEventDestroy(event));
}
static void CUDA_CB stays(void *unused)
{
    (void)unused;
    for (uint64_t until = now() + 30 * MS; now() < until;) {}
}
static void waits_for_the_host(CUstream stream) { DONE(cuLaunchHostFunc(stream, stays, NULL)); }
static void follows(void (*waits)(CUstream), CUstream first, CUstream second)
{
    uint64_t began = now();
    waits(first);
    launch(second, 1);
    DONE(cuStreamSynchronize(second));
    CHECK(now() >= began + 29 * MS);
}
static void waits_in_both_kinds_of_streams(void)
{
    CUstream blocking;
    DONE(cuStreamCreate(&others_stream, CU_STREAM_NON_BLOCKING));
    DONE(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    for (int i = 0; i < 2; i++) {
        follows(waits_for_an_event, NULL, blocking);
        follows(waits_for_an_event, blocking, NULL);
        follows(waits_for_the_host, NULL, blocking);
        follows(waits_for_the_host, blocking, NULL);
    }
}
void blocking_streams_keep_the_order_of_waits(void)
{
    CHECK(start(2) == 0);
    CHECK(set_policy(ORION_SCHEDULER_NONE, 1000) == 0);
    all_of(BE, waits_in_both_kinds_of_streams);
    all_of(HP, waits_in_both_kinds_of_streams);
}

/* As the driver's legacy stream does: it completes the work of a destroyed stream first. */
static void follows_a_destroyed_stream(void (*waits)(CUstream))
{
    CUstream blocking;
    DONE(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    uint64_t began = now();
    waits(blocking);
    DONE(cuStreamDestroy(blocking));
    launch(NULL, 1);
    DONE(cuStreamSynchronize(NULL));
    CHECK(now() >= began + 29 * MS);
}
static void works(CUstream stream) { launch(stream, 30); }
static void destroys_blocking_streams(void)
{
    DONE(cuStreamCreate(&others_stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++) {
        follows_a_destroyed_stream(works);
        follows_a_destroyed_stream(waits_for_an_event);
    }
}
void the_default_stream_follows_destroyed_streams(void)
{
    CHECK(start(2) == 0);
    CHECK(set_policy(ORION_SCHEDULER_NONE, 1000) == 0);
    all_of(BE, destroys_blocking_streams);
    all_of(HP, destroys_blocking_streams);
}
