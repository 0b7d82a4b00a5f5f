#include "be/chunks.h"

#include "be/chunk_times.h"
#include "be/samples.h"
#include "be/state.h"
#include "be/window.h"
#include "generated/driver.h"
#include "process/absence.h"
#include "process/gpu.h"
#include "process/policy.h"
#include "process/process.h"
#include "streams/capture.h"
#include "streams/outcome.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define LEDGER_SPINS 4000u

/* -- The ledger ------------------------------------------------------------------------------------------------------ */

bool orion_ledger_try_lock(struct orion_gpu *gpu)
{
    for (uint32_t i = 0; i < LEDGER_SPINS; i++) {
        if (!atomic_exchange_explicit(&orion_be(gpu)->ledger, 1, memory_order_acquire)) return true;
        while (i < LEDGER_SPINS && atomic_load_explicit(&orion_be(gpu)->ledger, memory_order_relaxed)) orion_pause(), i++;
    }
    return false;
}

void orion_ledger_unlock(struct orion_gpu *gpu)
{
    atomic_store_explicit(&gpu->record->in_flight_ns, atomic_load(&orion_be(gpu)->in_flight_ns), memory_order_relaxed);
    atomic_store_explicit(&orion_be(gpu)->ledger, 0, memory_order_release);
}

void orion_ledger_subtract(struct orion_gpu *gpu, uint64_t cost_ns)
{
    uint64_t held = atomic_load(&orion_be(gpu)->in_flight_ns);
    while (!atomic_compare_exchange_weak(&orion_be(gpu)->in_flight_ns, &held, held > cost_ns ? held - cost_ns : 0)) {}
}

/* -- Chunks ---------------------------------------------------------------------------------------------------------- */

/* Creates the event at first use, and puts it into the stream. */
static bool record(CUevent *event, const struct orion_stream_record *stream_record)
{
    if (*event == NULL) *event = orion_stream_record_event(stream_record, CU_EVENT_DEFAULT);
    return *event != NULL && orion_driver.cuEventRecord(*event, orion_stream_record_handle(stream_record)) == CUDA_SUCCESS;
}

/* Puts the chunk's end behind the launches that have returned by now. */
static bool record_end(struct orion_chunk *chunk, const struct orion_stream_record *stream_record)
{
    uint64_t returned = atomic_load(&stream_record->returned);
    if (!record(&chunk->end, stream_record)) return false;
    chunk->returned = returned;
    return true;
}

static void push_chunk(struct orion_chunks *chunks, struct orion_chunk *chunk, uint64_t identity)
{
    chunk->cost_ns = chunks->open_ns;
    chunk->begun_ns = chunks->open_since_ns;
    chunk->identity = identity;
    chunk->bounds = chunks->open;
    chunks->open = (struct orion_chunk_bounds){0};
    chunks->open_ns = 0;
    chunks->count++;
}

/* The clock is read before the launch, as the launching thread may lose its CPU in the driver's call. */
void orion_chunks_launched(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t cost_ns,
                           uint64_t launched_ns, bool beside_hp)
{
    struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    if (chunks->open_ns == 0) {
        chunks->open_since_ns = launched_ns;
        if (chunks->count == 0) chunks->until_ns = launched_ns;
    } else if (__builtin_expect(launched_ns > chunks->until_ns + ORION_USAGE_GAP_NS, 0)) {
        struct orion_relaxed relaxed = orion_capture_relax();
        orion_chunks_reap(process, stream_record);
        orion_capture_unrelax(&relaxed);
        if (chunks->count == 0) chunks->open.pause = ORION_CHUNK_PAUSES; /* the open chunk may have been complete */
    }
    if (beside_hp) chunks->open.pause = ORION_CHUNK_BESIDE;
    chunks->open_ns += cost_ns;
    if (launched_ns > chunks->until_ns) chunks->until_ns = launched_ns;
    if (cost_ns < ORION_WINDOW_ALONE) chunks->until_ns += cost_ns;
}

void orion_chunks_list(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t now)
{
    _Atomic uint64_t *unlisted_ns = &orion_be_stream_record(stream_record)->chunks.unlisted_ns;
    if (__builtin_expect(atomic_load_explicit(unlisted_ns, memory_order_relaxed) == 0, 1)) return;
    orion_chunks_launched(process, stream_record, atomic_exchange(unlisted_ns, 0), now, false);
}

void orion_chunks_close(struct orion_process *process, struct orion_stream_record *stream_record)
{
    struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    struct orion_chunk *chunk = orion_chunks_next(chunks);
    if (chunk == NULL || chunks->sampling || orion_stream_record_is_shared(process, stream_record))
        return; /* the cost goes into the next chunk */
    struct orion_relaxed relaxed = orion_capture_relax();
    if (record_end(chunk, stream_record)) push_chunk(chunks, chunk, 0);
    orion_capture_unrelax(&relaxed);
}

void orion_chunks_close_last(struct orion_process *process, struct orion_stream_record *stream_record)
{
    struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    if (chunks->open_ns == 0) return;
    orion_chunks_close(process, stream_record);
    if (chunks->open_ns == 0 || chunks->sampling || chunks->count < ORION_CHUNKS) return;
    struct orion_chunk *last = orion_chunks_at(chunks, chunks->count - 1);
    struct orion_relaxed relaxed = orion_capture_relax();
    if (record_end(last, stream_record)) {
        last->cost_ns += chunks->open_ns;
        last->identity = 0;
        last->bounds.pause = ORION_CHUNK_PAUSES;
        chunks->open = (struct orion_chunk_bounds){0};
        chunks->open_ns = 0;
    }
    orion_capture_unrelax(&relaxed);
}

/* -- Waits for a stop ------------------------------------------------------------------------------------------------ */

static void note_wait(struct orion_stream_record *stream_record)
{
    struct orion_chunk_bounds *open = &orion_be_stream_record(stream_record)->chunks.open;
    const struct orion_valve *valve = &orion_be(stream_record->gpu)->valve;
    if (open->pause != ORION_CHUNK_NO_PAUSE) return;
    open->valve_epoch = atomic_load(&valve->epoch);
    bool is_open = valve->page.words != NULL && atomic_load(valve->page.words) == 0;
    open->pause = is_open ? ORION_CHUNK_WAITS : ORION_CHUNK_PAUSES;
}

void orion_chunks_before_wait(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t least_ns)
{
    struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    if (chunks->open_ns > 0 && chunks->open_ns >= least_ns) orion_chunks_close(process, stream_record);
    if (chunks->open_ns > 0) note_wait(stream_record);
}

/* An event behind each wait would cost the GPU about half as much as the wait does. If the valve closes before the GPU has reached a
 * wait without one, the chunk counts no longer than expected. */
void orion_chunks_behind_wait(struct orion_stream_record *stream_record, bool exact)
{
    struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    struct orion_chunk *chunk = orion_chunks_next(chunks);
    if (chunks->open_ns > 0 || chunks->sampling) return;
    struct orion_relaxed relaxed = orion_capture_relax();
    if (exact && chunk != NULL && record(&chunk->waited, stream_record)) chunks->open.begin = ORION_CHUNK_BEGIN_WAITED;
    else note_wait(stream_record);
    orion_capture_unrelax(&relaxed);
}

/* -- Completed work -------------------------------------------------------------------------------------------------- */

static void retire(struct orion_process *process, struct orion_stream_record *stream_record, bool lost)
{
    struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    struct orion_chunk *chunk = orion_chunks_at(chunks, 0);
    /* Estimates when the next chunk began to run: at the expected end of this chunk, but not in the future. */
    _Atomic uint64_t *head_ns = &orion_be(stream_record->gpu)->head_ns;
    uint64_t now = orion_now(), head = atomic_load_explicit(head_ns, memory_order_relaxed);
    uint64_t began = chunk->begun_ns > head ? chunk->begun_ns : head;
    bool is_past = chunk->cost_ns < ORION_SECOND && began + chunk->cost_ns < now;
    atomic_store_explicit(head_ns, is_past ? began + chunk->cost_ns : now, memory_order_relaxed);
    orion_sample_learn(process, stream_record, chunk);
    orion_chunk_account(process, stream_record, chunk, lost, now);
    if (!lost) orion_stream_record_prove(stream_record, chunk->returned);
    orion_ledger_subtract(stream_record->gpu, chunk->cost_ns);
    chunks->first = (chunks->first + 1) % ORION_CHUNKS;
    chunks->count--;
}

unsigned orion_chunks_reap(struct orion_process *process, struct orion_stream_record *stream_record)
{
    unsigned retired = 0;
    struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    if (chunks->count == 0) return 0;
    enum orion_presence presence = orion_present_try(process);
    if (presence == ORION_ABSENT) return 0;
    while (chunks->count > 0) {
        struct orion_chunk *chunk = orion_chunks_at(chunks, 0);
        enum orion_outcome outcome = orion_outcome_of(orion_driver.cuEventQuery(chunk->end));
        if (outcome == ORION_OUTCOME_UNKNOWN) break;
        retire(process, stream_record, outcome == ORION_OUTCOME_LOST);
        retired++;
    }
    orion_present_end(process, presence);
    return retired;
}

void orion_chunks_drop(struct orion_stream_record *stream_record)
{
    struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    uint64_t cost = chunks->open_ns + atomic_exchange(&chunks->unlisted_ns, 0);
    for (uint32_t i = 0; i < chunks->count; i++) cost += orion_chunks_at(chunks, i)->cost_ns;
    chunks->first = (chunks->first + chunks->count) % ORION_CHUNKS; /* next_chunk stays: a sample may use it */
    chunks->open_ns = chunks->count = 0;
    chunks->open = (struct orion_chunk_bounds){0};
    orion_ledger_subtract(stream_record->gpu, cost);
}

/* -- Samples --------------------------------------------------------------------------------------------------------- */

bool orion_chunks_sample(struct orion_stream_record *stream_record, uint64_t identity)
{
    struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    struct orion_chunk *chunk = orion_chunks_next(chunks);
    if (chunk == NULL || chunks->sampling) return false;
    struct orion_relaxed relaxed = orion_capture_relax();
    if (record(&chunk->timed_start, stream_record)) {
        chunk->identity = identity;
        chunks->sampling = true;
        if (chunks->open_ns == 0 && chunks->open.begin == ORION_CHUNK_BEGIN_UNKNOWN) chunks->open.begin = ORION_CHUNK_BEGIN_TIMED;
    }
    orion_capture_unrelax(&relaxed);
    return chunks->sampling;
}

bool orion_chunks_sampled(struct orion_stream_record *stream_record)
{
    struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    if (!chunks->sampling) return false;
    struct orion_chunk *chunk = orion_chunks_next(chunks);
    chunks->sampling = false;
    struct orion_relaxed relaxed = orion_capture_relax();
    uint64_t ms = (orion_now() - chunks->open_since_ns) / ORION_MILLISECOND + 1;
    chunks->open.returned_ms = ms < UINT8_MAX ? (uint8_t)ms : UINT8_MAX;
    if (record_end(chunk, stream_record)) push_chunk(chunks, chunk, chunk->identity);
    orion_capture_unrelax(&relaxed);
    return true;
}

void orion_chunks_not_sampled(struct orion_stream_record *stream_record)
{
    struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    chunks->sampling = false;
    if (chunks->open.begin == ORION_CHUNK_BEGIN_TIMED) chunks->open.begin = ORION_CHUNK_BEGIN_UNKNOWN;
}

/* -- Ends ------------------------------------------------------------------------------------------------------------ */

void orion_chunks_forget(struct orion_stream_record *stream_record, bool context_lives)
{
    orion_chunks_drop(stream_record);
    for (uint32_t i = 0; i < ORION_CHUNKS; i++) {
        struct orion_chunk *chunk = &orion_be_stream_record(stream_record)->chunks.ring[i];
        CUevent *events[] = {&chunk->end, &chunk->waited, &chunk->timed_start};
        for (unsigned j = 0; j < 3; j++) {
            if (*events[j] != NULL && context_lives) orion_driver.cuEventDestroy_v2(*events[j]);
            *events[j] = NULL;
        }
    }
    orion_be_stream_record(stream_record)->chunks.sampling = false;
}
