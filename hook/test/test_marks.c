/* Marks show how far hp's queued work has come, and cost few events. A mark never proves incomplete work, no event is used after it
 * was destroyed, and none is recorded during a capture. test_mark_threads.c has several threads and a driver that fails at times. */
#include "marked_gpu.h"

#include "hp/drain.h"

static uint64_t progress(void) { return atomic_load(&gpu->busy->progress); }

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
    begin();
    struct orion_process *process = orion_the_process;
    no_be_needs_no_mark();
    be_comes();
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
    the_drain_thread_shows_progress_before_it_synchronises(process);
    return 0;
}
