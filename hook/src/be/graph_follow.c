#include "be/graph_follow.h"

#include "be/chunks.h"
#include "be/event_words.h"
#include "be/gate.h"
#include "be/order_wait.h"
#include "be/window.h"
#include "generated/driver.h"
#include "process/gpu.h"
#include "streams/capture.h"
#include "streams/stream_records.h"

/* The record may belong to another stream once a stream has ended. */
void orion_graph_note_stream(struct orion_process *process, struct orion_graph_copy *copy,
                             const struct orion_stream_record *stream_record)
{
    copy->stream_record = stream_record;
    copy->stream_epoch = atomic_load(&process->stream_record_epoch);
    copy->returned = stream_record != NULL ? atomic_load(&stream_record->returned) : 0;
}

static bool last_is_complete(const struct orion_graph_copy *copy)
{
    return atomic_load(&copy->stream_record->drained) >= copy->returned;
}

/* After a context has ended, its events are gone, and the work of its streams counts as complete. So an event behind work that is
 * not complete is of another context. But while a context ends its streams do not count yet, and an overflow record has streams of
 * several contexts. */
static bool event_is_known(const struct orion_process *process, const struct orion_graph_copy *copy, uint32_t ends)
{
    return copy->ends == ends || (copy->stream_record != NULL && !orion_contexts_end(process, atomic_load(&process->exits)) &&
                                  !orion_stream_record_is_shared(process, copy->stream_record));
}

static void drop_ended_event(struct orion_process *process, struct orion_graph_copy *copy)
{
    uint32_t ends = atomic_load(orion_ends_of(process, copy->context));
    if (copy->ends == ends) return;
    bool lives = copy->event != NULL && event_is_known(process, copy, ends) && !last_is_complete(copy);
    if (!lives) copy->event = copy->spare = NULL;
    copy->ends = ends;
}

/* Makes what has completed known. */
static void look_for_completed_work(struct orion_process *process, struct orion_stream_record *stream_record)
{
    if (orion_gate_closed(stream_record->gpu) || orion_contexts_end(process, atomic_load(&process->exits))) return;
    if (orion_window_enter(process, stream_record, 1, 0)) orion_window_leave(stream_record->gpu, 1);
}

/* Waits until the last launch, which was in pieces in another stream, has an event that can be used, or is complete. Mostly it has one. */
static void await_last(struct orion_process *process, struct orion_graph_copy *copy, struct orion_stream_record *stream_record,
                       struct orion_order_wait *wait)
{
    while (!last_is_complete(copy)) {
        if (copy->event != NULL && event_is_known(process, copy, atomic_load(orion_ends_of(process, copy->context)))) break;
        if (!orion_order_waits(process, stream_record->gpu, wait)) break;
        look_for_completed_work(process, stream_record);
    }
    drop_ended_event(process, copy);
}

/* Puts the event behind the last launch after all: the driver refused it then. Later work of that stream is before the event, too. Who ends
 * the stream waits for the ledger. */
static void record_late(struct orion_process *process, struct orion_graph_copy *copy)
{
    const struct orion_stream_record *last = copy->stream_record;
    struct orion_gpu *gpu = last->gpu;
    if (copy->spare == NULL || !orion_stream_record_has_handle(process, last) || !orion_touch(process)) return;
    if (orion_ledger_try_lock(gpu)) {
        struct orion_relaxed relaxed = orion_capture_relax();
        bool lives = copy->stream_epoch == atomic_load(&process->stream_record_epoch) &&
                     atomic_load(&last->state) == ORION_STREAM_RECORD_READY;
        if (lives && orion_driver.cuEventRecord(copy->spare, orion_stream_record_handle(last)) == CUDA_SUCCESS)
            copy->event = copy->spare, copy->spare = NULL, copy->number = 0;
        orion_capture_unrelax(&relaxed);
        orion_ledger_unlock(gpu);
    }
    orion_touched(process);
}

static bool stream_waits(struct orion_process *process, const struct orion_graph_copy *copy,
                         struct orion_stream_record *stream_record, struct orion_stream_name stream)
{
    struct orion_relaxed relaxed = orion_capture_relax();
    orion_event_word_wait(process, stream_record, copy->stream_record, copy->number);
    CUresult (*CUDAAPI wait)(CUstream, CUevent, unsigned) =
        stream.per_thread ? orion_driver.cuStreamWaitEvent_ptsz : orion_driver.cuStreamWaitEvent;
    bool waits = wait != NULL && wait(stream.handle, copy->event, 0) == CUDA_SUCCESS;
    orion_capture_unrelax(&relaxed);
    return waits;
}

bool orion_graph_follow(struct orion_process *process, struct orion_graph_copy *copy, struct orion_stream_record *stream_record,
                        struct orion_stream_name stream)
{
    bool same = copy->stream_record == stream_record && copy->stream_epoch == atomic_load(&process->stream_record_epoch) &&
                !orion_stream_record_is_shared(process, stream_record);
    struct orion_order_wait wait = {0};
    bool waits = copy->in_pieces && !same && copy->stream_record != NULL;
    if (waits && copy->event == NULL) record_late(process, copy);
    if (waits) await_last(process, copy, stream_record, &wait);
    else drop_ended_event(process, copy);
    if (same || copy->stream_record == NULL) return true;
    if (copy->event != NULL && stream_waits(process, copy, stream_record, stream)) return true;
    if (!waits) return false;
    if (copy->event != NULL) { /* the driver refuses the wait */
        copy->spare = copy->event, copy->event = NULL;
        await_last(process, copy, stream_record, &wait);
    }
    return last_is_complete(copy);
}

CUevent orion_graph_event_behind(struct orion_process *process, struct orion_graph_copy *copy,
                                 const struct orion_stream_record *stream_record)
{
    drop_ended_event(process, copy);
    CUevent event = copy->event != NULL ? copy->event : copy->spare;
    if (event != NULL && copy->context == stream_record->context) return event;
    struct orion_relaxed relaxed = orion_capture_relax();
    if (event != NULL) orion_driver.cuEventDestroy_v2(event);
    copy->context = stream_record->context;
    copy->ends = atomic_load(orion_ends_of(process, copy->context));
    copy->event = NULL;
    copy->spare = orion_stream_record_event(stream_record, CU_EVENT_DISABLE_TIMING);
    orion_capture_unrelax(&relaxed);
    return copy->spare;
}
