/* When a stream ends: the hook lets go of its handle, and what is still to be proven of its work stays provable. */
#include "be/ends.h"
#include "be/event_words.h"
#include "core/lifetimes.h"
#include "generated/driver.h"
#include "process/gpu.h"
#include "process/process.h"
#include "streams/capture.h"
#include "streams/capture_origins.h"
#include "streams/client_order.h"
#include "streams/stream_records.h"

/* hp's work continues after its stream is destroyed. If the client is a thread, the hook cannot prove this work by a
 * wait for the whole context, because other clients work there, too. So this function records an event behind the
 * work. */
static void record_last_event(const struct orion_process *process, struct orion_stream_record *stream_record)
{
    if (stream_record->gpu->client == 0) return;
    struct orion_relaxed relaxed = orion_capture_relax();
    CUevent event = atomic_exchange(&stream_record->last, NULL); /* of the stream that used this stream record before */
    if (event != NULL) orion_driver.cuEventDestroy_v2(event);
    if (orion_stream_record_has_handle(process, stream_record) && !orion_stream_record_is_drained(stream_record) &&
        (event = orion_stream_record_event(stream_record, CU_EVENT_DISABLE_TIMING)) != NULL) {
        if (orion_driver.cuEventRecord(event, orion_stream_record_handle(stream_record)) == CUDA_SUCCESS)
            atomic_store(&stream_record->last, event);
        else orion_driver.cuEventDestroy_v2(event);
    }
    orion_capture_unrelax(&relaxed);
}

void orion_stream_record_ending(struct orion_process *process, struct orion_stream_record *stream_record)
{
    uint32_t ready = ORION_STREAM_RECORD_READY;
    struct orion_gpu *gpu = stream_record->gpu;
    orion_ends_forget(stream_record, true);
    if (atomic_load(&gpu->role) == ORION_ROLE_BE) orion_stream_record_prove(stream_record, atomic_load(&stream_record->begun));
    else record_last_event(process, stream_record);
    /* The drain thread uses the stream handles of clients that are threads. */
    if (gpu->client != 0) orion_forbid_touch(process);
    orion_event_word_end(process, stream_record);
    atomic_compare_exchange_strong(&stream_record->state, &ready, ORION_STREAM_RECORD_ENDED);
    if (gpu->client != 0) orion_allow_touch(process);
    atomic_fetch_add(&process->stream_record_epoch, 1);
}

/* True: the hook keeps the stream. */
static bool end_stream(struct orion_process *process, struct orion_stream_record *stream_record, enum orion_stream_end end)
{
    if (atomic_load(&stream_record->gpu->role) != ORION_ROLE_BE) {
        orion_stream_record_ending(process, stream_record);
        return false;
    }
    orion_event_word_end(process, stream_record);
    bool kept = orion_ends_stream(process, stream_record, end);
    atomic_fetch_add(&process->stream_record_epoch, 1);
    return kept;
}

static bool end_records_of(struct orion_process *process, CUstream stream)
{
    bool kept = false;
    ORION_EACH_STREAM_RECORD(stream_record, process, NULL) {
        if (orion_stream_record_is_shared(process, stream_record) || atomic_load(&stream_record->hidden) != 0) continue;
        if (stream_record->key != (uint64_t)(uintptr_t)stream || atomic_load(&stream_record->state) != ORION_STREAM_RECORD_READY)
            continue;
        bool captured = orion_capture_records(process, orion_stream_record_name(stream_record));
        orion_client_order_ending(process, stream_record);
        kept |= end_stream(process, stream_record, captured ? ORION_STREAM_CAPTURED : ORION_STREAM_DESTROYED);
    }
    return kept;
}

void orion_thread_stream_ended(struct orion_process *process, struct orion_stream_record *stream_record)
{
    end_stream(process, stream_record, ORION_STREAM_OF_ENDED_THREAD);
}

/* The capture ends last: until then the records' ends see that the stream is being captured. */
bool orion_stream_ending(CUstream stream)
{
    struct orion_process *process = orion_process_if_managed();
    bool kept = process != NULL && end_records_of(process, stream);
    process = orion_the_process;
    if (process != NULL) orion_capture_origin_destroyed(process, stream); /* of an unmanaged process, too: see capture.c */
    return kept;
}
