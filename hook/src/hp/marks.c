#include "hp/marks.h"

#include "generated/driver.h"
#include "process/gpu.h"
#include "streams/capture.h"
#include "system/system.h"

#define BACKLOG_LEAST 3u /* fewer calls are no backlog: a program that waits after each graph needs no marks */
#define LOOKS_PER_STALL 16u

static struct orion_mark_ring *ring_of(struct orion_process *process, const struct orion_gpu *gpu)
{
    return &orion_marks(process)->ring[gpu - process->gpus];
}

/* 0 in the policy: be never gives up. Then the time matters only for the distance of marks. */
static uint64_t stall_of(const struct orion_gpu *gpu)
{
    uint64_t stall = orion_gpu_policy(gpu)->stall_ns;
    return stall != 0 ? stall : ORION_SECOND;
}

uint64_t orion_marks_every(const struct orion_gpu *gpu) { return stall_of(gpu) / LOOKS_PER_STALL; }

/* Whether the mark has an event. A context that ended while some thread owned the mark may have taken the event with
 * it; then this forgets the event. An event of another context is then lost, which is rare. */
static bool event_lives(const struct orion_mark_ring *ring, struct orion_mark *mark)
{
    if (mark->ended != atomic_load(&ring->ended)) mark->event = NULL;
    return mark->event != NULL;
}

static void drop_event(const struct orion_mark_ring *ring, struct orion_mark *mark)
{
    if (event_lives(ring, mark)) orion_driver.cuEventDestroy_v2(mark->event);
    mark->event = NULL;
}

/* Makes sure that the mark has an event of the stream's context. */
static bool has_event(const struct orion_mark_ring *ring, struct orion_mark *mark, CUcontext context)
{
    CUcontext current = NULL;
    if (event_lives(ring, mark) && mark->context == context) return true;
    if (orion_driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context) return false;
    drop_event(ring, mark);
    mark->ended = atomic_load(&ring->ended);
    if (orion_driver.cuEventCreate(&mark->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) mark->event = NULL;
    mark->context = context;
    return mark->event != NULL;
}

static bool record(const struct orion_mark_ring *ring, struct orion_mark *mark, struct orion_stream_record *stream_record,
                   uint64_t returned, uint64_t now)
{
    if (!has_event(ring, mark, stream_record->context)) return false;
    if (orion_driver.cuEventRecord(mark->event, orion_stream_record_handle(stream_record)) != CUDA_SUCCESS) {
        drop_event(ring, mark);
        return false;
    }
    mark->stream_record = stream_record;
    mark->returned = returned;
    mark->recorded_ns = now;
    return true;
}

static void make(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t returned)
{
    struct orion_gpu *gpu = stream_record->gpu;
    if (!orion_touch(process)) return;
    uint64_t now = orion_now();
    struct orion_mark_ring *ring = ring_of(process, gpu);
    struct orion_mark *mark = orion_mark_ring_take(ring, now, stall_of(gpu));
    if (mark != NULL) {
        bool recorded = record(ring, mark, stream_record, returned, now);
        orion_mark_give(mark, recorded ? ORION_MARK_PENDING : ORION_MARK_FREE);
    }
    orion_touched(process);
}

/* The launch at which to look again. It is at most ORION_MARK_STRIDE launches away, because the work may be proved
 * meanwhile, and then a shorter distance than that of a long queue suffices. */
static uint64_t next_look(uint64_t returned, uint64_t due)
{
    return due > returned && due < returned + ORION_MARK_STRIDE ? due : returned + ORION_MARK_STRIDE;
}

static bool needs_marks(struct orion_process *process, const struct orion_stream_record *stream_record)
{
    const struct orion_gpu *gpu = stream_record->gpu;
    return orion_gpu_be_clients(gpu) > 0 && atomic_load_explicit(&gpu->role, memory_order_relaxed) == ORION_ROLE_HP &&
           stream_record->green == NULL && !orion_stream_record_is_shared(process, stream_record);
}

void orion_marks_launched(struct orion_process *process, struct orion_stream_record *stream_record, bool graph)
{
    struct orion_mark_ring *ring = ring_of(process, stream_record->gpu);
    uint64_t drained = atomic_load_explicit(&stream_record->drained, memory_order_relaxed);
    uint64_t returned = atomic_load(&stream_record->returned);                          /* before the event is recorded */
    uint64_t from = atomic_load_explicit(&stream_record->marked, memory_order_relaxed); /* the last mark, or later proof */
    if (!needs_marks(process, stream_record)) {
        atomic_store_explicit(&stream_record->mark_at, returned + ORION_MARK_STRIDE, memory_order_relaxed);
        return;
    }
    if (drained >= from) orion_mark_ring_relax(ring), from = drained;
    uint32_t stride = orion_mark_ring_stride(ring);
    uint64_t least = drained + BACKLOG_LEAST, due = from + stride > least ? from + stride : least;
    /* Another thread may have marked a later launch of the stream. */
    bool is_due = returned >= due || (graph && returned >= least && returned >= from + stride / ORION_MARK_STRIDE);
    atomic_store_explicit(&stream_record->mark_at, next_look(returned, is_due ? returned + stride : due), memory_order_relaxed);
    if (!is_due) return;
    atomic_store_explicit(&stream_record->marked, returned, memory_order_relaxed);
    make(process, stream_record, returned);
}

static CUresult query(const struct orion_mark_ring *ring, struct orion_mark *mark)
{
    if (orion_mark_is_proven(mark)) return CUDA_SUCCESS;
    return event_lives(ring, mark) ? orion_driver.cuEventQuery(mark->event) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Returns whether the mark stays pending. */
static bool look_at(const struct orion_mark_ring *ring, struct orion_mark *mark, uint64_t *oldest_ns)
{
    CUresult result = query(ring, mark);
    if (result == CUDA_SUCCESS && !orion_mark_is_proven(mark)) {
        orion_stream_record_prove(mark->stream_record, mark->returned);
        if (mark->recorded_ns < *oldest_ns) *oldest_ns = mark->recorded_ns;
    }
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) drop_event(ring, mark);
    orion_mark_give(mark, result == CUDA_ERROR_NOT_READY ? ORION_MARK_PENDING : ORION_MARK_FREE);
    return result == CUDA_ERROR_NOT_READY;
}

uint32_t orion_marks_look(struct orion_process *process, struct orion_gpu *gpu)
{
    struct orion_mark_ring *ring = ring_of(process, gpu);
    uint64_t oldest_ns = UINT64_MAX;
    uint32_t pending = 0;
    for (uint32_t i = 0; i < ORION_MARKS; i++) {
        struct orion_mark *mark = &ring->mark[i];
        if (atomic_load_explicit(&mark->state, memory_order_relaxed) != ORION_MARK_PENDING) continue;
        if (!orion_touch(process)) return pending + 1;
        if (orion_mark_own(mark)) pending += look_at(ring, mark, &oldest_ns);
        orion_touched(process);
    }
    if (oldest_ns != UINT64_MAX) orion_mark_ring_completed(ring, oldest_ns, orion_now(), stall_of(gpu));
    return pending;
}

static bool own_now(struct orion_mark *mark, uint32_t *state)
{
    *state = atomic_load(&mark->state);
    return *state != ORION_MARK_OWNED && atomic_compare_exchange_strong(&mark->state, state, ORION_MARK_OWNED);
}

void orion_marks_end(struct orion_process *process, const struct orion_gpu *gpu, CUcontext context)
{
    struct orion_mark_ring *ring = ring_of(process, gpu);
    uint32_t before = atomic_fetch_add(&ring->ended, 1);
    for (uint32_t i = 0; i < ORION_MARKS; i++) {
        uint32_t state;
        struct orion_mark *mark = &ring->mark[i];
        if (!own_now(mark, &state)) continue;
        if (mark->ended == before) mark->ended = before + 1;
        if (context == NULL || mark->context == context) drop_event(ring, mark);
        orion_mark_give(mark, mark->event != NULL ? state : ORION_MARK_FREE);
    }
}
