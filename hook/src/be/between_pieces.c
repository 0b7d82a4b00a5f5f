#include "be/between_pieces.h"

#include <stdatomic.h>
#include <stdint.h>

#include "be/graph_copies.h"
#include "be/order_wait.h"
#include "be/state.h"
#include "process/process.h"
#include "streams/stream_records.h"
#include "system/system.h"

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

/* Others are between their pieces, or another launch has waited for longer than this thread, which holds no stream yet: else threads
 * whose streams are ordered with that of the launch, but not with each other, could always hold one of theirs. since: when this one
 * came. */
static bool others_go_first(struct orion_process *process, const struct orion_stream_record *stream_record, uint64_t since)
{
    ORION_EACH_STREAM_RECORD(other, process, stream_record->gpu) {
        uint64_t others_since = atomic_load(&orion_be_stream_record(other)->waits_since);
        if (others_since == 0 || others_since >= since) continue;
        if (orion_stream_records_are_ordered(stream_record, other)) return true;
    }
    return others_are_between(process, stream_record);
}

/* The thread that has waited for longest shows it. */
static void show_wait(struct orion_stream_record *stream_record, uint64_t since)
{
    _Atomic uint64_t *shown = &orion_be_stream_record(stream_record)->waits_since;
    uint64_t seen = atomic_load(shown);
    while ((seen == 0 || seen > since) && !atomic_compare_exchange_weak(shown, &seen, since)) {}
}

static void end_wait(struct orion_stream_record *stream_record, uint64_t since)
{
    atomic_compare_exchange_strong(&orion_be_stream_record(stream_record)->waits_since, &since, 0);
}

/* Whether a thread may launch a graph in pieces before this launch has returned: not without hp, unless hp joins meanwhile. The hp may be
 * that of another GPU on which the graph has kernels. */
static bool pieces_may_come(struct orion_process *process, const struct orion_gpu *gpu)
{
    if (atomic_load_explicit(&orion_graph_copies(process)->count, memory_order_relaxed) > 0 || orion_gpu_hp_clients(gpu) > 0)
        return true;
    ORION_EACH_GPU(other, process)
        if (atomic_load_explicit(&other->role, memory_order_relaxed) == ORION_ROLE_BE && orion_gpu_hp_clients(other) > 0)
            return true;
    return false;
}

/* One step of a wait for others. False: the wait was long enough. since: when the thread came; 0: it holds a stream, and lets nobody
 * wait. */
static bool wait_on(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t since,
                    struct orion_order_wait *wait)
{
    if (since != 0) show_wait(stream_record, since);
    return orion_order_waits(process, stream_record->gpu, wait);
}

/* False: others still are between their pieces, but this was long enough. */
static bool await_pieces(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t since,
                         struct orion_order_wait *wait)
{
    while (others_are_between(process, stream_record))
        if (!wait_on(process, stream_record, since, wait)) return false;
    return true;
}

/* A launch counts before it looks for holders, and a holder looks for launches after it has taken the stream. All of this is sequentially
 * consistent, so at least one of the two sees the other. */
bool orion_between_pieces_wait(struct orion_process *process, struct orion_stream_record *stream_record)
{
    _Atomic uint32_t *under_way = &orion_be_stream_record(stream_record)->under_way;
    uint64_t since = 0;
    struct orion_order_wait wait = {0};
    if (!pieces_may_come(process, stream_record->gpu) || holder_of(stream_record) == (uintptr_t)&own) return false;
    for (bool waits = true;;) {
        atomic_fetch_add(under_way, 1);
        if (!waits || !others_are_between(process, stream_record)) break;
        atomic_fetch_sub(under_way, 1);
        if (since == 0) since = orion_now();
        waits = await_pieces(process, stream_record, since, &wait);
    }
    if (since != 0) end_wait(stream_record, since);
    return true;
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
static bool take_in_turn(struct orion_process *process, struct orion_stream_record *stream_record, uint64_t since,
                         struct orion_order_wait *wait)
{
    for (;;) {
        bool alone = true;
        while (alone && others_go_first(process, stream_record, since)) alone = wait_on(process, stream_record, since, wait);
        if (take(stream_record)) {
            if (!alone || !others_are_between(process, stream_record)) return true;
            if (stream_record->order != ORION_ORDER_LEGACY) {
                await_pieces(process, stream_record, 0, wait);
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
    uint64_t since = orion_now();
    struct orion_order_wait wait = {0};
    bool taken = take_in_turn(process, stream_record, since, &wait);
    end_wait(stream_record, since);
    while (taken && others_are_under_way(process, stream_record) && wait_on(process, stream_record, 0, &wait)) continue;
    return taken;
}

void orion_between_pieces_end(struct orion_stream_record *stream_record)
{
    atomic_store(&orion_be_stream_record(stream_record)->in_pieces, 0);
    atomic_fetch_sub(holders_on(stream_record), 1);
}
