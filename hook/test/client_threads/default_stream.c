/* The hook gives each client its own stream in place of the default stream. These scenarios check that this stream
 * keeps what programs rely on: order, events, captures. */
#include "scenarios.h"
#include "threads.h"

static void copies_and_kernels_keep_their_order(void)
{
    CUdeviceptr memory;
    uint32_t seen = 0, sent = 7;
    DONE(cuMemAlloc(&memory, 4096));
    for (uint32_t i = 1; i <= 20; i++) {
        launch(NULL, 1);
        DONE(cuMemsetD32Async(memory, i, 1024, i % 2 ? NULL : CU_STREAM_LEGACY));
        DONE(cuMemcpyDtoH(&seen, memory + 4092, 4));
        CHECK(seen == i);
        launch(CU_STREAM_PER_THREAD, 1);
        DONE(cuMemsetD32(memory, i + 100, 1024));
        DONE(cuMemcpyAsync((CUdeviceptr)(uintptr_t)&seen, memory, 4, NULL));
        DONE(cuStreamSynchronize(NULL));
        CHECK(seen == i + 100);
        DONE(cuMemcpyHtoD(memory, &sent, 4));
        DONE(cuMemcpyDtoD(memory + 8, memory, 4));
        DONE(cuMemcpy((CUdeviceptr)(uintptr_t)&seen, memory + 8, 4));
        CHECK(seen == 7);
    }
    DONE(cuMemFree(memory));
}
void a_clients_calls_run_in_order(void)
{
    CHECK(start(2) == 0);
    pthread_t be = in_thread(BE, copies_and_kernels_keep_their_order);
    all_of(HP, copies_and_kernels_keep_their_order);
    pthread_join(be, NULL);
}

static CUdeviceptr shared_word;
static void read_shared_word(void)
{
    uint32_t seen = 0;
    DONE(cuMemcpyDtoHAsync(&seen, shared_word, 4, NULL));
    DONE(cuStreamSynchronize(NULL));
    CHECK(seen == 42);
    launch(NULL, 10);
    DONE(cuMemsetD32Async(shared_word, 43, 1, NULL));
    CHECK(bind_to(-1) == 0);
}
void binding_keeps_the_order(void)
{
    uint32_t seen = 0;
    CHECK(start(2) == 0);
    DONE(cuMemAlloc(&shared_word, 4));
    launch(NULL, 10); /* on the legacy stream; once a thread is bound, its client's stream waits for this work */
    DONE(cuMemsetD32Async(shared_word, 42, 1, NULL));
    all_of(HP, read_shared_word);
    DONE(cuMemcpyDtoH(&seen, shared_word, 4)); /* after the unbinding, the legacy stream waits for the client's stream */
    CHECK(seen == 43);
}

/* The thread has used its client's streams in two contexts, and none is current when it leaves. */
static CUcontext second;
static void leaves_two_contexts(void)
{
    launch(NULL, 50);
    DONE(cuCtxPushCurrent(second));
    DONE(cuStreamQuery(NULL));
    DONE(cuCtxSetCurrent(NULL));
    CHECK(bind_to(-1) == 0);
}
void unbinding_keeps_the_order_in_each_context(void)
{
    CHECK(start(2) == 0);
    CHECK(set_policy(ORION_SCHEDULER_NONE, 1000) == 0);
    DONE(cuCtxCreate(&second, NULL, 0, 0));
    DONE(cuCtxPopCurrent(&second));
    uint64_t began = now();
    all_of(HP, leaves_two_contexts);
    be_runs(); /* on the legacy stream */
    CHECK(marks[0] > began + 49 * MS);
    DONE(cuCtxDestroy(second));
}

static void launches_and_leaves(void)
{
    hp_worked_until = now() + 100 * MS;
    launch(NULL, 100);
    CHECK(bind_to(-1) == 0);
}
static void leaves_while_another_comes(void)
{
    CUgraph graph;
    CUstream own = stream_of(BE);
    DONE(cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch(NULL, 1);
    CHECK(bind_to(-1) == 0);
    all_of(HP, be_runs); /* its stream does not join the capture */
    DONE(cuStreamEndCapture(own, &graph));
}
void binding_keeps_the_order_beside_a_capture(void)
{
    CHECK(start(2) == 0);
    for (unsigned flags = CU_STREAM_DEFAULT; flags <= CU_STREAM_NON_BLOCKING; flags++) {
        CUgraph graph;
        CUstream stream;
        DONE(cuStreamCreate(&stream, flags));
        hp_begins();
        DONE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        all_of(BE, be_runs);
        CHECK(marks[0] > hp_worked_until);
        all_of(BE, launches_and_leaves);
        DONE(cuStreamEndCapture(stream, &graph));
        be_runs();
        CHECK(marks[0] > hp_worked_until);
        DONE(cuStreamDestroy(stream));
    }
    all_of(BE, leaves_while_another_comes);
}

static void be_synchronises_context(void)
{
    launch(NULL, 1);
    DONE(cuCtxSynchronize());
    marks[0] = now();
}
void a_context_synchronise_waits_for_its_own_client(void)
{
    CHECK(start(2) == 0);
    CHECK(set_policy(ORION_SCHEDULER_NONE, 1000) == 0);
    all_of(HP, hp_begins);
    all_of(BE, be_synchronises_context);
    all_of(HP, hp_ends);
    CHECK(marks[0] < marks[1]);
    CHECK(set_policy(ORION_SCHEDULER_GATE, 1000) == 0);
    all_of(HP, hp_begins);
    pthread_t be = in_thread(BE, be_synchronises_context);
    all_of(HP, hp_ends);
    pthread_join(be, NULL);
    CHECK(marks[0] > hp_worked_until);
}

/* Returns after how many milliseconds the second stream's work is complete that began behind the first one's. */
static uint64_t complete_after(CUstream first, CUstream second, void (*then)(CUstream))
{
    uint64_t began = now();
    launch(first, 30);
    if (then != NULL) then(second);
    DONE(cuStreamSynchronize(second));
    uint64_t took = (now() - began) / MS;
    DONE(cuCtxSynchronize());
    return took;
}
static void launches_more(CUstream stream) { launch(stream, 1); }
static void records_an_event(CUstream stream)
{
    CUevent recorded;
    DONE(cuEventCreate(&recorded, CU_EVENT_DISABLE_TIMING));
    DONE(cuEventRecord(recorded, stream));
    DONE(cuEventSynchronize(recorded));
    DONE(cuEventDestroy(recorded));
}
static void CUDA_CB notes_the_time(void *unused) { (void)unused, marks[2] = now(); }
static void calls_the_host(CUstream stream) { DONE(cuLaunchHostFunc(stream, notes_the_time, NULL)); }
static void (*const actions[])(CUstream) = {launches_more, records_an_event, calls_the_host};
static CUstream destroyed;
static void destroys(CUstream next)
{
    DONE(cuStreamDestroy(destroyed));
    launches_more(next);
}
/* As the driver orders them with the legacy stream. */
static void works_in_a_blocking_stream(void)
{
    CUstream stream, free;
    DONE(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    DONE(cuStreamCreate(&free, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < sizeof actions / sizeof *actions; i++) {
        CHECK(complete_after(stream, NULL, actions[i]) >= 29);
        CHECK(complete_after(NULL, stream, actions[i]) >= 29);
    }
    CHECK(complete_after(stream, NULL, NULL) >= 29); /* the legacy stream is idle when all blocking ones are */
    launch(stream, 30);
    CHECK(cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY);
    DONE(cuStreamDestroy(stream));
    DONE(cuStreamCreate(&stream, CU_STREAM_DEFAULT)); /* perhaps with the same handle and record */
    CHECK(complete_after(NULL, stream, launches_more) >= 29);
    destroyed = stream;
    CHECK(complete_after(stream, NULL, destroys) >= 29);
    DONE(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    launch(free, 300);
    records_an_event(NULL);
    CHECK(cuStreamQuery(free) == CUDA_ERROR_NOT_READY);
    DONE(cuStreamDestroy(stream));
    DONE(cuStreamDestroy(free));
}
void blocking_streams_keep_the_order(void)
{
    CHECK(start(2) == 0);
    CHECK(set_policy(ORION_SCHEDULER_NONE, 1000) == 0);
    all_of(BE, works_in_a_blocking_stream);
    all_of(HP, works_in_a_blocking_stream);
}

/* The scheduler manages one GPU. */
static void synchronises_the_other_gpu(void)
{
    DONE(cuStreamQuery(NULL));
    DONE(cuCtxPushCurrent(second));
    initialise_kernel();
    marks[2] = now();
    launch(NULL, 50);
    DONE(cuCtxPopCurrent(&second));
    DONE(cuCtxSynchronize_v2(second));
    CHECK(now() > marks[2] + 49 * MS);
}
void a_synchronise_of_another_gpus_context_waits_for_it(void)
{
    CHECK(start(2) == 0);
    DONE(cuDevicePrimaryCtxRetain(&second, 1));
    all_of(HP, synchronises_the_other_gpu);
}

/* The driver completes the work of a destroyed stream. No handle names it any more. */
static void destroys_a_busy_stream(void)
{
    CUstream stream;
    DONE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    marks[2] = now();
    launch(stream, 50);
    DONE(cuStreamDestroy(stream));
    DONE(cuCtxSynchronize());
    marks[0] = now();
}
static void each_client_destroys_a_busy_stream(void)
{
    for (int client = BE; client <= HP; client++) {
        all_of(client, destroys_a_busy_stream);
        CHECK(marks[0] > marks[2] + 49 * MS);
    }
}
void a_context_synchronise_waits_for_destroyed_streams(void)
{
    CUgraph graph;
    CUstream captured;
    CHECK(start(2) == 0);
    each_client_destroys_a_busy_stream();
    /* A wait for the whole context would fail, and end the capture. */
    DONE(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    DONE(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    each_client_destroys_a_busy_stream();
    DONE(cuStreamEndCapture(captured, &graph));
}

static CUevent event;
static void record(void)
{
    launch(NULL, 10);
    DONE(cuEventRecord(event, NULL));
    marks[2] = now();
}
static void wait_for_event(void)
{
    DONE(cuStreamWaitEvent(NULL, event, 0));
    launch(NULL, 1);
    DONE(cuStreamSynchronize(NULL));
    marks[0] = now();
}
void events_order_clients(void)
{
    CHECK(start(2) == 0);
    CHECK(set_policy(ORION_SCHEDULER_NONE, 1000) == 0);
    DONE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    all_of(BE, record);
    all_of(HP, wait_for_event);
    DONE(cuEventQuery(event));
    CHECK(marks[0] > marks[2] + 8 * MS);
}

static void capture_and_replay(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUstreamCaptureStatus status;
    DONE(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    DONE(cuStreamIsCapturing(NULL, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    launch(CU_STREAM_PER_THREAD, 5);
    launch(NULL, 5);
    DONE(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
    DONE(cuGraphInstantiate(&exec, graph, 0));
    uint64_t began = now();
    DONE(cuGraphLaunch(exec, NULL));
    DONE(cuStreamSynchronize(NULL));
    CHECK(now() > began + 9 * MS);
}
void captures_use_the_clients_stream(void)
{
    CHECK(start(2) == 0);
    all_of(BE, capture_and_replay);
    CHECK(figures(BE).launches == 1);
}
