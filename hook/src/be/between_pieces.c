#include "be/between_pieces.h"

#include <stdatomic.h>
#include <stdint.h>

#include "be/gate.h"
#include "be/graph_copies.h"
#include "be/state.h"
#include "process/process.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define POLL_NS (50 * ORION_MICROSECOND)
#define MOST_NS ORION_SECOND /* while the gate is open */

static _Thread_local char own; /* its address is the thread's number */

static uintptr_t holder_of(const struct orion_stream_record *stream_record)
{
    return atomic_load(&orion_be_stream_record(stream_record)->in_pieces);
}

static _Atomic uint32_t *holders_on(const struct orion_stream_record *stream_record)
{
    return &orion_be(stream_record->gpu)->in_pieces;
}

/* -- Waits ----------------------------------------------------------------------------------------------------------- */

static bool others_are_between(struct orion_process *process, const struct orion_stream_record *stream_record)
{
    ORION_EACH_STREAM_RECORD(other, process, stream_record->gpu) {
        if (atomic_load(holders_on(stream_record)) == 0) break;
        if (holder_of(other) == 0 || holder_of(other) == (uintptr_t)&own) continue;
        if (orion_stream_records_are_ordered(stream_record, other)) return true;
    }
    return false;
}

/* Launches that have looked for holders and found none, and have not returned. */
static bool others_are_under_way(struct orion_process *process, const struct orion_stream_record *stream_record)
{
    ORION_EACH_STREAM_RECORD(other, process, stream_record->gpu) {
        if (atomic_load(&orion_be_stream_record(other)->under_way) == 0) continue;
        if (orion_stream_records_are_ordered(stream_record, other)) return true;
    }
    return false;
}

/* The pieces of a graph with kernels on several GPUs wait for the hp of each. */
static bool may_wait_for_hp(struct orion_process *process, const struct orion_gpu *gpu)
{
    for (uint32_t i = 0; gpu->client == 0 && i < orion_process_gpus(process); i++)
        if (atomic_load(&process->gpus[i].role) == ORION_ROLE_BE && orion_gate_closed(&process->gpus[i])) return true;
    return false;
}

/* False: they still are, but this was long enough. */
static bool await_others(bool (*are_there)(struct orion_process *, const struct orion_stream_record *),
                         struct orion_process *process, struct orion_stream_record *stream_record)
{
    struct orion_gpu *gpu = stream_record->gpu;
    uint64_t waited = 0;
    while (are_there(process, stream_record)) {
        if (waited >= MOST_NS) return false;
        if (orion_gate_closed(gpu)) {
            orion_gate_sleep(process, gpu, ORION_GATE_POLL_NS);
            continue;
        }
        orion_sleep_precisely(POLL_NS);
        waited += may_wait_for_hp(process, gpu) ? 0 : POLL_NS;
    }
    return true;
}

/* A launch counts before it looks for holders, and a holder looks for launches after it has taken the stream. All of this is sequentially
 * consistent, so at least one of the two sees the other. */
bool orion_between_pieces_wait(struct orion_process *process, struct orion_stream_record *stream_record)
{
    _Atomic uint32_t *under_way = &orion_be_stream_record(stream_record)->under_way;
    if (__builtin_expect(atomic_load_explicit(&orion_graph_copies(process)->count, memory_order_relaxed) == 0, 1)) return false;
    if (holder_of(stream_record) == (uintptr_t)&own) return false;
    for (bool waits = true;;) {
        atomic_fetch_add(under_way, 1);
        if (!waits || !others_are_between(process, stream_record)) return true;
        atomic_fetch_sub(under_way, 1);
        waits = await_others(others_are_between, process, stream_record);
    }
}

void orion_between_pieces_launched(struct orion_stream_record *stream_record)
{
    atomic_fetch_sub(&orion_be_stream_record(stream_record)->under_way, 1);
}

/* -- Around the launches of the pieces ------------------------------------------------------------------------------- */

static bool take(struct orion_stream_record *stream_record)
{
    uintptr_t none = 0;
    if (!atomic_compare_exchange_strong(&orion_be_stream_record(stream_record)->in_pieces, &none, (uintptr_t)&own)) return false;
    atomic_fetch_add(holders_on(stream_record), 1);
    return true;
}

/* Takes the stream while no other thread has one of the same order. If two threads take such streams at the same time, the one with the
 * legacy stream is second. False: others hold it for too long. */
static bool take_in_turn(struct orion_process *process, struct orion_stream_record *stream_record)
{
    for (;;) {
        bool alone = await_others(others_are_between, process, stream_record);
        if (take(stream_record)) {
            if (!alone || !others_are_between(process, stream_record)) return true;
            if (stream_record->order != ORION_ORDER_LEGACY) {
                await_others(others_are_between, process, stream_record);
                return true;
            }
            orion_between_pieces_end(stream_record);
        } else if (!alone) {
            return false;
        }
    }
}

bool orion_between_pieces_begin(struct orion_process *process, struct orion_stream_record *stream_record)
{
    if (stream_record == NULL || orion_stream_record_is_shared(process, stream_record)) return false;
    if (!take_in_turn(process, stream_record)) return false;
    await_others(others_are_under_way, process, stream_record);
    return true;
}

void orion_between_pieces_end(struct orion_stream_record *stream_record)
{
    atomic_store(&orion_be_stream_record(stream_record)->in_pieces, 0);
    atomic_fetch_sub(holders_on(stream_record), 1);
}
