/* Marks on a driver that fails at times, with threads that launch, a thread that looks, and contexts that end. A mark
 * never proves incomplete work, no event is used after it was destroyed, and none is recorded during a capture. The test
 * also runs under the thread sanitizer. */
#include "check.h"
#include "fake_driver.h"

#include <pthread.h>
#include <sched.h>

#include "core/core.h"
#include "hp/drain.h"
#include "hp/marks.h"
#include "streams/capture.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define STREAMS 3u
#define THREADS 3u
#define ROUNDS 30000
#define EVENTS 200000u

static struct orion_gpu *gpu;
static _Atomic uint64_t given[STREAMS], completed[STREAMS];
static _Atomic uint32_t finished, made, recorded, failures;
static _Atomic bool capturing;
static struct {
    _Atomic bool alive;
    _Atomic uint32_t stream;
    _Atomic uint64_t behind; /* the event is complete when so many launches of the stream are */
} events[EVENTS];

static CUstream stream_of(unsigned i) { return (CUstream)(uintptr_t)(0x5000 + 0x100 * i); }
static bool fails(void) { return failures > 0 && atomic_fetch_add(&failures, 1) % 61 == 0; }
static uint32_t number_of(CUevent event)
{
    uint32_t number = (uint32_t)(uintptr_t)event;
    CHECK(number > 0 && number < EVENTS && atomic_load(&events[number].alive));
    return number;
}

static CUresult CUDAAPI create_event(CUevent *event, unsigned flags)
{
    CHECK(flags == CU_EVENT_DISABLE_TIMING);
    if (fails()) return CUDA_ERROR_OUT_OF_MEMORY;
    uint32_t number = atomic_fetch_add(&made, 1) + 1;
    CHECK(number < EVENTS);
    atomic_store(&events[number].alive, true);
    *event = (CUevent)(uintptr_t)number;
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI destroy_event(CUevent event)
{
    atomic_store(&events[number_of(event)].alive, false);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI record_event(CUevent event, CUstream stream)
{
    uint32_t number = number_of(event), i = ((uint32_t)(uintptr_t)stream - 0x5000) / 0x100;
    CHECK(!atomic_load(&capturing));
    if (fails()) return CUDA_ERROR_INVALID_HANDLE;
    atomic_store(&events[number].stream, i);
    atomic_store(&events[number].behind, atomic_load(&given[i]));
    atomic_fetch_add(&recorded, 1);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI query_event(CUevent event)
{
    uint32_t number = number_of(event), i = atomic_load(&events[number].stream);
    if (fails()) return CUDA_ERROR_ILLEGAL_ADDRESS;
    return atomic_load(&completed[i]) >= atomic_load(&events[number].behind) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static struct orion_stream_record *launch(unsigned i, bool graph)
{
    struct orion_work work = {.stream = {stream_of(i), false}, .identity = 1, .launch = {.graph = graph ? &work : NULL}};
    orion_work_begin(&work);
    CHECK(work.stream_record != NULL);
    atomic_fetch_add(&given[i], 1);
    orion_work_end(&work, CUDA_SUCCESS);
    return work.stream_record;
}

static uint64_t progress(void) { return atomic_load(&gpu->busy->progress); }
static void complete_all(struct orion_process *process)
{
    for (unsigned i = 0; i < STREAMS; i++) atomic_store(&completed[i], atomic_load(&given[i]));
    while (orion_marks_look(process, gpu) > 0) {}
    for (unsigned i = 0; i < STREAMS; i++) {
        struct orion_proof proof = {.scope = ORION_PROOF_STREAM, .stream = {stream_of(i), false}};
        orion_proof_begin(&proof);
        orion_proof_end(&proof, CUDA_SUCCESS);
    }
}

/* -- One thread ------------------------------------------------------------------------------------------------------ */

static void a_queue_shows_its_progress(struct orion_process *process, bool graph, uint32_t launches, uint32_t steps)
{
    complete_all(process);
    uint64_t began = atomic_load(&given[0]), seen = progress();
    struct orion_stream_record *record = NULL;
    for (uint32_t i = 0; i < launches; i++) record = launch(0, graph);
    CHECK(orion_marks_look(process, gpu) > 0 && progress() == seen);
    for (uint32_t step = 1; step <= steps; step++) {
        atomic_store(&completed[0], began + (uint64_t)launches * step / steps);
        orion_marks_look(process, gpu);
        CHECK(progress() > seen);
        CHECK(atomic_load(&record->drained) <= atomic_load(&completed[0]));
        seen = progress();
    }
}

static void no_be_needs_no_mark(void)
{
    for (uint32_t i = 0; i < 1000; i++) launch(0, i % 5 == 0);
    CHECK(atomic_load(&recorded) == 0);
}

static void work_that_is_waited_for_needs_no_mark(struct orion_process *process)
{
    complete_all(process);
    uint32_t before = atomic_load(&recorded);
    for (uint32_t i = 0; i < 1000; i++) {
        launch(0, true);
        launch(0, false);
        complete_all(process);
    }
    CHECK(atomic_load(&recorded) == before);
}

static void short_work_costs_few_events(struct orion_process *process)
{
    for (uint32_t round = 0; round < 100; round++) {
        complete_all(process);
        if (round == 50) atomic_store(&recorded, 0);
        for (uint32_t i = 0; i < 500; i++) launch(0, false);
    }
    CHECK(atomic_load(&recorded) <= 50 * (500 / ORION_MARK_STRIDE + 1));
}

static void no_event_is_recorded_in_a_capture(struct orion_process *process)
{
    complete_all(process);
    atomic_fetch_add(&process->captures, 1);
    atomic_store(&capturing, true);
    struct orion_stream_record *record = launch(0, false);
    for (uint32_t i = 0; i < 100; i++) {
        atomic_fetch_add(&record->begun, 1);
        atomic_fetch_add(&record->returned, 1);
        orion_marks_launched(process, record, i & 1);
        atomic_fetch_add(&given[0], 1);
    }
    atomic_store(&capturing, false);
    atomic_fetch_sub(&process->captures, 1);
}

static CUresult CUDAAPI no_capture(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI lost(CUevent event)
{
    (void)event;
    return CUDA_ERROR_INVALID_HANDLE;
}

static void an_event_that_fails_proves_nothing_and_later_ones_do(struct orion_process *process)
{
    complete_all(process);
    uint64_t seen = progress();
    for (uint32_t i = 0; i < 100; i++) launch(0, false);
    orion_driver.cuEventQuery = lost;
    CHECK(orion_marks_look(process, gpu) == 0 && progress() == seen);
    orion_driver.cuEventQuery = query_event;
    a_queue_shows_its_progress(process, false, 200, 4);
}

static void a_context_ends_with_its_events(struct orion_process *process)
{
    complete_all(process);
    for (uint32_t i = 0; i < 100; i++) launch(0, false);
    atomic_fetch_add(&process->context_epoch, 1);
    orion_marks_end(process, gpu, (CUcontext)0x2000);
    CHECK(orion_marks_look(process, gpu) > 0);
    orion_marks_end(process, gpu, FAKE_CONTEXT);
    CHECK(orion_marks_look(process, gpu) == 0);
    for (uint32_t i = 1; i <= atomic_load(&made); i++) CHECK(!atomic_load(&events[i].alive));
    a_queue_shows_its_progress(process, false, 200, 4);
}

/* An ending thread waits for others for a bounded time only, and a driver's call may block for longer, as a record into
 * a full queue does. */
static void end_all_contexts(void)
{
    atomic_fetch_add(&orion_the_process->context_epoch, 1);
    orion_marks_end(orion_the_process, gpu, NULL);
    for (uint32_t i = 1; i <= atomic_load(&made); i++) atomic_store(&events[i].alive, false);
}
static CUresult CUDAAPI context_ends_in_query(CUevent event)
{
    number_of(event);
    orion_driver.cuEventQuery = query_event;
    end_all_contexts();
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI context_ends_in_record(CUevent event, CUstream stream)
{
    (void)stream;
    number_of(event);
    orion_driver.cuEventRecord = record_event;
    end_all_contexts();
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static void a_context_ends_inside_a_call_of_the_hook(struct orion_process *process)
{
    complete_all(process);
    for (uint32_t i = 0; i < 100; i++) launch(0, false);
    orion_driver.cuEventQuery = context_ends_in_query;
    orion_marks_look(process, gpu);
    CHECK(orion_driver.cuEventQuery == query_event);
    a_queue_shows_its_progress(process, false, 4000, 4);
    complete_all(process);
    orion_driver.cuEventRecord = context_ends_in_record;
    a_queue_shows_its_progress(process, false, 4000, 4);
    CHECK(orion_driver.cuEventRecord == record_event);
}

/* -- Several threads ------------------------------------------------------------------------------------------------- */

static void *launcher(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument * 2654435761u + 1;
    for (int round = 0; round < ROUNDS; round++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        launch((unsigned)(random >> 40) % STREAMS, random >> 60 == 0);
        if (random >> 54 == 0) sched_yield();
    }
    atomic_fetch_add(&finished, 1);
    return NULL;
}

/* The GPU: completes work in the order of each stream. Contexts end now and then. */
static void *gpu_thread(void *argument)
{
    struct orion_process *process = argument;
    for (uint64_t turn = 1; atomic_load(&finished) < THREADS; turn++) {
        uint64_t done = atomic_load(&completed[turn % STREAMS]);
        if (done < atomic_load(&given[turn % STREAMS])) atomic_store(&completed[turn % STREAMS], done + 1);
        if (turn % 512 != 0) continue;
        orion_forbid_touch(process);
        atomic_fetch_add(&process->context_epoch, 1);
        orion_marks_end(process, gpu, turn % 1024 ? NULL : FAKE_CONTEXT);
        orion_allow_touch(process);
    }
    return NULL;
}

static void *looker(void *argument)
{
    struct orion_process *process = argument;
    while (atomic_load(&finished) < THREADS) {
        orion_marks_look(process, gpu);
        for (unsigned i = 0; i < STREAMS; i++) {
            struct orion_stream_record *record = orion_stream_record_of(process, (struct orion_stream_name){stream_of(i), false});
            uint64_t drained = atomic_load(&record->drained);
            CHECK(drained <= atomic_load(&completed[i]));
        }
    }
    return NULL;
}

static void threads_and_failures_break_nothing(struct orion_process *process)
{
    pthread_t threads[THREADS], others[2];
    complete_all(process);
    for (unsigned i = 0; i < STREAMS; i++) launch(i, false);
    atomic_store(&failures, 1);
    pthread_create(&others[0], NULL, gpu_thread, process);
    pthread_create(&others[1], NULL, looker, process);
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, launcher, (void *)(i + 1));
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < 2; i++) pthread_join(others[i], NULL);
    atomic_store(&failures, 0);
    complete_all(process);
    for (unsigned i = 0; i < ORION_MARKS; i++) CHECK(atomic_load(&orion_marks(process)->ring[0].mark[i].state) == ORION_MARK_FREE);
    CHECK(atomic_load(&recorded) > 100);
}

/* -- A driver before CUDA 12.5, which records no event for a context ------------------------------------------------- */

static CUresult CUDAAPI synchronise_context(void)
{
    for (unsigned i = 0; i < STREAMS; i++) CHECK(atomic_load(&completed[i]) == atomic_load(&given[i]));
    return CUDA_SUCCESS;
}

static void the_drain_thread_shows_progress_before_it_synchronises(struct orion_process *process)
{
    complete_all(process);
    orion_driver.cuCtxRecordEvent = NULL;
    orion_driver.cuCtxSynchronize = synchronise_context;
    for (uint32_t i = 0; i < 160; i++) launch(0, false);
    uint64_t from = atomic_load(&completed[0]), until = orion_now() + 20 * ORION_SECOND;
    orion_drain_request(gpu);
    for (uint32_t step = 1; step <= 8; step++) {
        uint64_t seen = progress();
        atomic_store(&completed[0], from + 20 * step);
        while (progress() == seen) CHECK(orion_now() < until);
    }
    while (atomic_load(&gpu->busy->state) == ORION_BUSY) CHECK(orion_now() < until);
}

int main(void)
{
    gpu = fake_gpu(ORION_ROLE_HP);
    struct orion_process *process = orion_the_process;
    struct orion_policy_page *policy = (struct orion_policy_page *)(uintptr_t)gpu->policy;
    orion_driver.cuEventCreate = create_event;
    orion_driver.cuEventDestroy_v2 = destroy_event;
    orion_driver.cuEventRecord = record_event;
    orion_driver.cuEventQuery = query_event;
    orion_driver.cuStreamIsCapturing = no_capture;
    no_be_needs_no_mark();
    atomic_store(&policy->be_clients, 1);
    a_queue_shows_its_progress(process, false, 160, 8);
    a_queue_shows_its_progress(process, true, 28, 7);
    short_work_costs_few_events(process);
    a_queue_shows_its_progress(process, false, 160, 8);
    a_queue_shows_its_progress(process, true, 28, 7);
    a_queue_shows_its_progress(process, false, 100000, 16);
    work_that_is_waited_for_needs_no_mark(process);
    no_event_is_recorded_in_a_capture(process);
    an_event_that_fails_proves_nothing_and_later_ones_do(process);
    a_context_ends_with_its_events(process);
    a_context_ends_inside_a_call_of_the_hook(process);
    threads_and_failures_break_nothing(process);
    the_drain_thread_shows_progress_before_it_synchronises(process);
    return 0;
}
