#include "be/ends.h"

#include "be/chunk_times.h"
#include "be/chunks.h"
#include "be/driver_order.h"
#include "be/partition.h"
#include "be/state.h"
#include "be/valve.h"
#include "be/window.h"
#include "generated/driver.h"
#include "process/process.h"
#include "streams/capture.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define TRIES 1000u
#define KEPT_MOST 64u             /* each has its part of the GPU's queues */
#define LOOK_NS ORION_MILLISECOND /* the least time between two looks for completed work */

/* Nothing here is on the launch path, so this may wait for the ledger, about a second at most. It waits because events must not
 * be used after their context has ended. */
static bool lock_ledger(struct orion_gpu *gpu)
{
    for (unsigned tries = 0; !orion_ledger_try_lock(gpu); orion_sleep_precisely(ORION_MILLISECOND))
        if (++tries == TRIES) return false;
    return true;
}

/* The next stream of this stream record contains no wait yet. */
static void forget_waits(struct orion_stream_record *stream_record)
{
    orion_be_stream_record(stream_record)->waited_epoch = 0;
    orion_be_stream_record(stream_record)->past_valve_ns = 0;
    orion_be_stream_record(stream_record)->meeting = 0;
    orion_driver_order_forget(stream_record);
}

static void count_as_complete(struct orion_stream_record *stream_record)
{
    orion_chunks_expect(stream_record, orion_now());
    orion_chunks_drop(stream_record);
}

static void make_free(struct orion_stream_record *stream_record)
{
    orion_stream_record_prove(stream_record, atomic_load(&stream_record->begun));
    atomic_store(&stream_record->state, ORION_STREAM_RECORD_ENDED);
}

/* -- Streams that are kept until their work is complete; guarded by the ledger --------------------------------------------- */

static bool keep(struct orion_process *process, struct orion_stream_record *stream_record, enum orion_stream_end end)
{
    struct orion_gpu *gpu = stream_record->gpu;
    struct orion_be_stream_record *mine = orion_be_stream_record(stream_record);
    if (end != ORION_STREAM_DESTROYED || mine->chunks.count == 0 || gpu->client != 0 || orion_be(gpu)->kept_streams >= KEPT_MOST)
        return false;
    /* The driver refuses the handles of a green context that ends. */
    if (stream_record->green != NULL || !orion_stream_record_has_handle(process, stream_record)) return false;
    if (!orion_valve_may_hold(gpu)) return false;
    mine->kept = true;
    orion_be(gpu)->kept_streams++;
    return true;
}

/* The thread may have no current context. */
static void end_kept(struct orion_stream_record *stream_record, bool context_lives)
{
    struct orion_be_stream_record *mine = orion_be_stream_record(stream_record);
    CUstream stream = orion_stream_record_handle(stream_record);
    CUcontext popped;
    if (!mine->kept) return;
    mine->kept = false;
    orion_be(stream_record->gpu)->kept_streams--;
    if (!context_lives || orion_driver.cuCtxPushCurrent_v2(stream_record->context) != CUDA_SUCCESS) return;
    orion_driver.cuStreamDestroy_v2(stream);
    orion_driver.cuCtxPopCurrent_v2(&popped);
}

/* -- Ends ------------------------------------------------------------------------------------------------------------ */

void orion_ends_free(struct orion_stream_record *stream_record)
{
    if (atomic_load(&stream_record->state) != ORION_STREAM_RECORD_ENDING) return;
    const struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    if (chunks->count > 0 || chunks->open_ns > 0) return;
    orion_chunks_forget(stream_record, true);
    orion_partition_forget(stream_record, true);
    end_kept(stream_record, true);
    make_free(stream_record);
}

bool orion_ends_stream(struct orion_process *process, struct orion_stream_record *stream_record, enum orion_stream_end end)
{
    struct orion_gpu *gpu = stream_record->gpu;
    const struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    bool drained = orion_stream_record_is_drained(stream_record);
    forget_waits(stream_record);
    if (!lock_ledger(gpu)) { /* its holder may be using the record, so a later holder frees it */
        atomic_store(&stream_record->state, ORION_STREAM_RECORD_ENDING);
        return false;
    }
    struct orion_relaxed relaxed = orion_capture_relax();
    orion_chunks_list(process, stream_record, orion_now());
    if (!drained && end == ORION_STREAM_DESTROYED) orion_chunks_close_last(process, stream_record);
    orion_chunks_reap(process, stream_record);
    bool lacks_event = chunks->open_ns > 0 && end != ORION_STREAM_OF_ENDED_THREAD; /* no event is behind all of the work */
    if (drained || lacks_event) count_as_complete(stream_record);
    orion_partition_forget(stream_record, true);
    bool kept = keep(process, stream_record, end);
    atomic_store(&stream_record->state, ORION_STREAM_RECORD_ENDING);
    orion_ends_free(stream_record);
    bool looks = orion_now() > orion_be(gpu)->looked_ns + LOOK_NS;
    orion_capture_unrelax(&relaxed);
    orion_ledger_unlock(gpu);
    /* A program that destroys streams all the time would otherwise use up the records before a launch waits for the window. */
    if (looks) orion_window_reap(process, gpu);
    return kept;
}

void orion_ends_forget(struct orion_stream_record *stream_record, bool context_lives)
{
    struct orion_gpu *gpu = stream_record->gpu;
    forget_waits(stream_record);
    if (!lock_ledger(gpu)) return;
    forget_waits(stream_record); /* a launch may have held the ledger until now */
    struct orion_relaxed relaxed = orion_capture_relax();
    if (context_lives) {
        orion_chunks_reap(orion_process_started(), stream_record);
        orion_chunks_expect(stream_record, orion_now());
    }
    orion_chunks_forget(stream_record, context_lives);
    orion_partition_forget(stream_record, context_lives);
    end_kept(stream_record, context_lives);
    orion_ends_free(stream_record);
    orion_capture_unrelax(&relaxed);
    orion_ledger_unlock(gpu);
}

void orion_ends_context(struct orion_gpu *gpu, CUcontext context, bool context_lives)
{
    if (!lock_ledger(gpu)) return;
    orion_gpu_clock_forget(&orion_be(gpu)->clock, context, context_lives);
    orion_ledger_unlock(gpu);
}
