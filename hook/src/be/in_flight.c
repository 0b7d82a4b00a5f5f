#include "be/in_flight.h"

#include "be/chunk_times.h"
#include "be/chunks.h"
#include "be/ends.h"
#include "be/gate.h"
#include "be/state.h"
#include "be/window.h"
#include "learning/durations.h"
#include "process/gpu.h"
#include "process/process.h"
#include "streams/capture.h"
#include "streams/stream_records.h"

static bool awaits_program(struct orion_process *process, const struct orion_chunk *first)
{
    struct orion_kernel_facts facts;
    if (first->bounds.awaits_program) return true;
    return first->identity != 0 && orion_kernel_facts(orion_durations(process), first->identity, &facts) && facts.awaits_program;
}

unsigned orion_in_flight_retire(struct orion_process *process, struct orion_gpu *gpu, uint64_t now)
{
    unsigned retired = 0;
    uint32_t at_work = 0, awaits = 0;
    uint64_t head = UINT64_MAX, since = now > orion_be(gpu)->looked_ns ? now - orion_be(gpu)->looked_ns : 0;
    bool held = orion_gate_closed(gpu) && !atomic_load(&process->kept_open);
    orion_be(gpu)->looked_ns = now;
    ORION_EACH_STREAM_RECORD(stream_record, process, gpu) {
        struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
        orion_chunks_list(process, stream_record, now);
        retired += orion_chunks_reap(process, stream_record);
        orion_ends_free(stream_record);
        at_work += chunks->count > 0 || chunks->open_ns > 0;
        if (chunks->count > 0) {
            const struct orion_chunk *first = orion_chunks_at(chunks, 0);
            if (first->begun_ns < head) head = first->begun_ns;
            awaits |= awaits_program(process, first);
        } else if (chunks->open_ns > 0 && held) {
            /* The open chunk may wait behind the closed valve. This time does not count, but does not start the count again. */
            uint64_t open_since_ns = chunks->open_since_ns + since;
            chunks->open_since_ns = open_since_ns < now ? open_since_ns : now;
        } else if (chunks->open_ns > 0 && now > chunks->open_since_ns + 4 * ORION_RUN_AHEAD * orion_window_share(gpu)) {
            /* No event is behind this work, but by its expected time it is long complete. */
            orion_chunks_expect(stream_record, now);
            orion_chunks_drop(stream_record);
            retired++;
        }
    }
    if (retired > 0) orion_be(gpu)->stuck_ns = 0;
    if (head != UINT64_MAX && head > atomic_load_explicit(&orion_be(gpu)->head_ns, memory_order_relaxed))
        atomic_store_explicit(&orion_be(gpu)->head_ns, head, memory_order_relaxed);
    orion_be(gpu)->stream_records_at_work = at_work;
    atomic_store_explicit(&orion_be(gpu)->awaits_program, awaits, memory_order_relaxed);
    return retired;
}

void orion_in_flight_forget(struct orion_process *process, struct orion_gpu *gpu)
{
    ORION_EACH_STREAM_RECORD(stream_record, process, gpu) orion_chunks_drop(stream_record);
    atomic_store(&orion_be(gpu)->in_flight_ns, 0);
}

static struct orion_chunk *first_of(const struct orion_stream_record *stream_record)
{
    struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
    return chunks->count > 0 ? orion_chunks_at(chunks, 0) : NULL;
}

bool orion_in_flight_take_for_awaiting(struct orion_process *process, const struct orion_gpu *gpu)
{
    bool takes = false;
    ORION_EACH_STREAM_RECORD(stream_record, process, gpu) {
        struct orion_chunk *first = first_of(stream_record);
        if (first == NULL) continue;
        if (first->bounds.awaits_program) return false;
        first->bounds.awaits_program = takes = true;
    }
    return takes;
}

uint64_t orion_in_flight_awaiting(struct orion_process *process, const struct orion_gpu *gpu)
{
    ORION_EACH_STREAM_RECORD(stream_record, process, gpu) {
        const struct orion_chunk *first = first_of(stream_record);
        if (first != NULL && awaits_program(process, first)) return first->begun_ns;
    }
    return 0;
}

/* Whether another stream may get an event. It may be another thread's, which may destroy it meanwhile, or begin to capture it. */
static bool may_close(struct orion_process *process, const struct orion_stream_record *stream_record, CUcontext context)
{
    return stream_record->context == context && atomic_load(&stream_record->state) == ORION_STREAM_RECORD_READY &&
           (orion_stream_record_has_handle(process, stream_record) || orion_stream_record_is_of_this_thread(stream_record));
}

void orion_in_flight_close(struct orion_process *process, struct orion_stream_record *own)
{
    bool touches = orion_touch(process);
    ORION_EACH_STREAM_RECORD(stream_record, process, own->gpu) {
        if (orion_be_stream_record(stream_record)->chunks.open_ns == 0) continue;
        if (stream_record == own || (touches && may_close(process, stream_record, own->context)))
            orion_chunks_close(process, stream_record);
    }
    if (touches) orion_touched(process);
}

uint64_t orion_in_flight_longest(struct orion_process *process, const struct orion_gpu *gpu)
{
    uint64_t longest = 0;
    ORION_EACH_STREAM_RECORD(stream_record, process, gpu) {
        struct orion_chunks *chunks = &orion_be_stream_record(stream_record)->chunks;
        if (chunks->open_ns > longest) longest = chunks->open_ns;
        for (uint32_t j = 0; j < chunks->count; j++) {
            uint64_t cost_ns = orion_chunks_at(chunks, j)->cost_ns;
            if (cost_ns > longest) longest = cost_ns;
        }
    }
    return longest;
}
