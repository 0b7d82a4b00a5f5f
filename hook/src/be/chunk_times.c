#include "be/chunk_times.h"

#include "be/accounts.h"
#include "be/chunks.h"
#include "be/gpu_clock.h"
#include "be/state.h"
#include "be/turns.h"
#include "learning/durations.h"
#include "learning/facts.h"
#include "process/gpu.h"
#include "process/policy.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define HANDOVER_NS ORION_MILLISECOND /* after the valve has opened, work of others may run on for so long */

static bool may_have_paused(const struct orion_gpu *gpu, const struct orion_chunk *chunk)
{
    if (chunk->bounds.pause != ORION_CHUNK_WAITS) return chunk->bounds.pause != ORION_CHUNK_NO_PAUSE;
    return atomic_load(&orion_be(gpu)->valve.epoch) != chunk->bounds.valve_epoch;
}

/* While the valve has just closed or opened, or a turn has just ended, the GPU alternates between this context and others. */
static bool was_time_sliced(const struct orion_gpu *gpu, uint64_t begin, uint64_t end)
{
    const struct orion_valve *valve = &orion_be(gpu)->valve;
    uint64_t turn_ended = atomic_load_explicit(&orion_be(gpu)->turn_ended_ns, memory_order_relaxed);
    uint64_t closed = atomic_load_explicit(&valve->closed_ns, memory_order_relaxed);
    uint64_t opened = atomic_load_explicit(&valve->opened_ns, memory_order_relaxed);
    if (orion_runs_together(gpu)) return false;
    if (turn_ended >= begin && turn_ended < end) return true;
    return (closed >= begin && closed < end) || (opened + HANDOVER_NS >= begin && opened < end);
}

/* A sample's duration was perhaps unknown when it was launched, and has been learnt since. */
static uint64_t expected_ns(const struct orion_process *process, const struct orion_chunk *chunk)
{
    struct orion_kernel_facts facts = {0};
    if (chunk->identity != 0) orion_kernel_facts(orion_durations(process), chunk->identity, &facts);
    return facts.expected_ns > chunk->cost_ns ? facts.expected_ns : chunk->cost_ns;
}

void orion_chunk_account(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_chunk *chunk,
                         bool lost, uint64_t now)
{
    struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    struct orion_gpu_clock *clock = &orion_be(stream_record->gpu)->clock;
    uint64_t begin = chunk->begun_ns > chunks->ended_ns ? chunk->begun_ns : chunks->ended_ns, end = now, from = 0;
    if (!lost) {
        end = orion_gpu_clock_end(clock, stream_record, &chunk->end, begin, now);
        CUevent first = chunk->bounds.begin == ORION_CHUNK_BEGIN_WAITED ? chunk->waited : chunk->timed_start;
        if (chunk->bounds.begin != ORION_CHUNK_BEGIN_UNKNOWN && orion_gpu_clock_read(clock, stream_record, first, &from) &&
            from > begin)
            begin = from;
    }
    struct orion_gpu *gpu = stream_record->gpu;
    bool paused = lost || may_have_paused(gpu, chunk), bounded = paused || was_time_sliced(gpu, begin, end);
    uint64_t expected = bounded ? expected_ns(process, chunk) : UINT64_MAX;
    uint64_t from_ns = begin; /* the work was on the GPU from here, if it did not pause */
    if (end > begin && end - begin > expected) begin = end - expected;
    chunks->ended_ns = end > chunks->ended_ns ? end : chunks->ended_ns;
    orion_account_gpu_time(gpu, begin, end, orion_turns_ran_on(gpu, paused ? begin : from_ns, end, end - begin));
}

static void expect(struct orion_stream_record *stream_record, uint64_t begun_ns, uint64_t cost_ns, uint64_t now)
{
    struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    uint64_t begin = begun_ns > chunks->ended_ns ? begun_ns : chunks->ended_ns;
    if (cost_ns == 0 || begin >= now) return;
    chunks->ended_ns = cost_ns < now - begin ? begin + cost_ns : now;
    orion_account_gpu_time(stream_record->gpu, begin, chunks->ended_ns, 0);
}

void orion_chunks_expect(struct orion_stream_record *stream_record, uint64_t now_ns)
{
    struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    uint64_t from = 0;
    for (uint32_t i = 0; i < chunks->count; i++) {
        const struct orion_chunk *chunk = orion_chunks_at(chunks, i);
        expect(stream_record, chunk->begun_ns, chunk->cost_ns, now_ns);
    }
    struct orion_chunk *next = chunks->open.begin == ORION_CHUNK_BEGIN_WAITED ? orion_chunks_next(chunks) : NULL;
    if (next != NULL) orion_gpu_clock_read(&orion_be(stream_record->gpu)->clock, stream_record, next->waited, &from);
    expect(stream_record, from > chunks->open_since_ns ? from : chunks->open_since_ns, chunks->open_ns, now_ns);
}
