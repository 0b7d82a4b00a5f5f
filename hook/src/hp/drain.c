#include "hp/drain.h"

#include <sys/prctl.h>

#include "generated/driver.h"
#include "hp/busy.h"
#include "hp/marks.h"
#include "hp/state.h"
#include "process/process.h"
#include "streams/capture.h"
#include "streams/outcome.h"
#include "streams/stream_records.h"
#include "system/spawn.h"
#include "system/system.h"

#define MARKS 64u
#define POLL_MIN_NS (50 * ORION_MICROSECOND)
#define POLL_SOON_NS ORION_MILLISECOND /* the time between two polls grows fast to this one, then slowly to the longest */
#define POLL_MAX_NS (4 * ORION_MILLISECOND)
#define WAIT_NS ORION_SECOND

struct mark {
    struct orion_stream_record *stream_record;
    uint64_t returned;
};
struct marks {
    CUcontext context; /* never a green context of the program: see struct orion_stream_record */
    bool one_stream;   /* true: one stream record's stream; false: all streams of the context */
    uint32_t count;
    struct mark mark[MARKS];
};

/* Clients that are threads share a context, so a proof for one client must not wait for the whole context. The hook
 * proves such a client's streams one at a time: by an event in the stream, or by the event that the hook recorded when
 * the stream was destroyed. */
static bool is_proven_by_stream(struct orion_process *process, const struct orion_gpu *gpu,
                                const struct orion_stream_record *stream_record)
{
    if (gpu->client == 0 || !orion_stream_record_has_handle(process, stream_record)) return false;
    return atomic_load(&stream_record->state) == ORION_STREAM_RECORD_READY || atomic_load(&stream_record->last) != NULL;
}

/* Collects the stream records of one context of the GPU that have unproven work. */
static bool mark_next_context(struct orion_process *process, struct orion_gpu *gpu, struct marks *marks)
{
    marks->context = NULL;
    marks->one_stream = false;
    marks->count = 0;
    ORION_EACH_STREAM_RECORD(stream_record, process, gpu) {
        uint64_t returned = atomic_load(&stream_record->returned);
        if (returned == atomic_load(&stream_record->drained)) continue;
        if (marks->context == NULL) marks->context = stream_record->context;
        if (stream_record->context != marks->context) continue;
        bool one_stream = is_proven_by_stream(process, gpu, stream_record);
        if (one_stream && marks->count > 0) continue;
        marks->mark[marks->count++] = (struct mark){stream_record, returned};
        marks->one_stream = one_stream;
        if (one_stream || marks->count == MARKS) break;
    }
    return marks->count > 0;
}

/* Sets *event only if the event was recorded. */
static CUresult record_event(const struct marks *marks, CUevent *event)
{
    if (!marks->one_stream && orion_driver.cuCtxRecordEvent == NULL) return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = orion_driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) return result;
    result = marks->one_stream ? orion_driver.cuEventRecord(*event, orion_stream_record_handle(marks->mark[0].stream_record))
                               : orion_driver.cuCtxRecordEvent(marks->context, *event);
    if (result == CUDA_SUCCESS) return result;
    orion_driver.cuEventDestroy_v2(*event);
    *event = NULL;
    return result;
}

/* Creates and records the event. No capture begins and no context ends meanwhile (orion_touch), but the context of the marks may
 * have ended since `epoch`. While orion_ends_of the context is *ends, it lives. */
static CUresult record(struct orion_process *process, const struct marks *marks, uint32_t epoch, uint32_t *ends, CUevent *event)
{
    CUcontext popped;
    if (!orion_touch(process)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    *ends = atomic_load(orion_ends_of(process, marks->context));
    struct orion_stream_record *stream_record = marks->mark[0].stream_record;
    CUresult result;
    if (atomic_load(&process->context_epoch) != epoch) {
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    } else if (marks->one_stream && atomic_load(&stream_record->state) != ORION_STREAM_RECORD_READY) {
        /* The stream was destroyed. The hook may have recorded an event at that time (lifetimes.c). */
        *event = atomic_exchange(&stream_record->last, NULL);
        /* The stream was destroyed just now: try again at the next request. */
        result = *event != NULL ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    } else if ((result = orion_driver.cuCtxPushCurrent_v2(marks->context)) == CUDA_SUCCESS) {
        result = record_event(marks, event);
        if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_OUT_OF_MEMORY) result = orion_driver.cuCtxSynchronize();
        orion_driver.cuCtxPopCurrent_v2(&popped);
    }
    orion_touched(process);
    return result;
}

/* Queries the event, and destroys it once it is complete. If the context has ended, its events ended with it. */
static CUresult look_at(struct orion_process *process, CUcontext context, uint32_t ends, CUevent event)
{
    if (!orion_touch(process)) return CUDA_ERROR_NOT_READY;
    CUresult result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (atomic_load(orion_ends_of(process, context)) == ends) {
        result = orion_driver.cuEventQuery(event);
        if (result != CUDA_ERROR_NOT_READY) orion_driver.cuEventDestroy_v2(event);
    }
    orion_touched(process);
    return result;
}

/* Meanwhile, marks show the progress of the work in front of the event. */
static CUresult await(struct orion_process *process, struct orion_gpu *gpu, CUcontext context, uint32_t ends, CUevent event)
{
    CUresult result;
    /* A thread inside a synchronising call probably proves the work itself. */
    uint64_t pause = atomic_load(&process->blocked_proofs) > 0 ? POLL_SOON_NS : POLL_MIN_NS, looked = 0;
    while ((result = look_at(process, context, ends, event)) == CUDA_ERROR_NOT_READY) {
        uint64_t now = orion_now();
        if (now > looked + orion_marks_every(gpu)) orion_marks_look(process, gpu), looked = now;
        orion_sleep_precisely(pause);
        if (pause < POLL_MAX_NS) pause += pause / (pause < POLL_SOON_NS ? 4 : 16);
    }
    return result;
}

/* Returns false if there is nothing more to do now. */
static bool drain_once(struct orion_process *process, struct orion_gpu *gpu)
{
    struct marks marks;
    CUevent event = NULL;
    uint32_t epoch = atomic_load(&process->context_epoch), ends = 0; /* before a context is chosen */
    /* One request handles one context. The next request handles the process's other contexts. */
    if (!mark_next_context(process, gpu, &marks)) {
        orion_busy_try_close(process, gpu);
        return false;
    }
    /* The synchronisation shows nothing until all work is complete, so it begins behind the last mark. */
    bool synchronises = !marks.one_stream && orion_driver.cuCtxRecordEvent == NULL;
    while (synchronises && orion_marks_look(process, gpu) > 0) orion_sleep_precisely(POLL_SOON_NS);
    CUresult result = record(process, &marks, epoch, &ends, &event);
    if (result == CUDA_SUCCESS && event != NULL) result = await(process, gpu, marks.context, ends, event);
    /* Whoever ends a context also ends its stream records (lifetimes.c). In a context that is lost otherwise, no work is
     * left to wait for. Of the work of an unknown outcome the next request asks again. */
    if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED || orion_outcome_of(result) == ORION_OUTCOME_UNKNOWN) return false;
    for (uint32_t i = 0; i < marks.count; i++) orion_stream_record_prove(marks.mark[i].stream_record, marks.mark[i].returned);
    orion_busy_try_close(process, gpu);
    return marks.one_stream || marks.count == MARKS; /* then there may be more */
}

static void drain(struct orion_process *process, struct orion_gpu *gpu)
{
    for (unsigned streams = 0; streams < MARKS && drain_once(process, gpu); streams++) {}
}

static void *run(void *argument)
{
    struct orion_gpu *gpu = argument;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    prctl(PR_SET_NAME, "orion-drain", 0, 0, 0);
    orion_driver.cuThreadExchangeStreamCaptureMode(&mode);
    for (;;) {
        uint32_t notifier = atomic_load(&orion_hp(gpu)->drain_notifier);
        if (atomic_exchange(&orion_hp(gpu)->drain_requested, 0)) drain(orion_the_process, gpu);
        else orion_futex_wait(&orion_hp(gpu)->drain_notifier, notifier, WAIT_NS, false);
    }
    return NULL;
}

void orion_drain_request(struct orion_gpu *gpu)
{
    if (atomic_exchange(&orion_hp(gpu)->drain_requested, 1)) return;
    /* If that fails, the next request tries again. */
    if (orion_thread_spawn_once(&orion_hp(gpu)->drain_thread, run, gpu) != 0) atomic_store(&orion_hp(gpu)->drain_requested, 0);
    atomic_fetch_add(&orion_hp(gpu)->drain_notifier, 1);
    orion_futex_wake_all(&orion_hp(gpu)->drain_notifier, false);
}
