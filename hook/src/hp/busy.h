/* The busy word of hp: the state in the busy page that says whether this process has work on the GPU.
 *
 * A launch increments `begun` of its stream record, sets BUSY if needed, calls the driver and increments `returned`. A
 * proof, a driver call that shows that work is complete, raises `drained` (streams/stream_records.h). To end the busy
 * period, a thread sets BUSY -> CLOSING. It then sets LINGER only if `drained` (read first) equals `begun` (read
 * second) for every stream record. A launch meanwhile sets CLOSING back to BUSY, so the exchange to LINGER fails. Only
 * one thread closes at a time. If two threads closed, one could end a CLOSING that the other began after new work. All
 * these accesses are sequentially consistent. hook/test/test_busy.c tests this under load.
 *
 * Rejected, because counter-examples exist: setting the state to idle first and restoring BUSY if work is left; a proof
 * that reads `begun`. */
#ifndef ORION_BUSY_H
#define ORION_BUSY_H

#include <stdint.h>

#include "process/gpu.h"

struct orion_stream_record;
struct orion_process;

enum orion_busy_change { ORION_BUSY_SAME = 0, ORION_BUSY_OPENED = 1, ORION_BUSY_RESUMED = 2 };

/* How many calls that put work on the GPU have begun so far; of a client that is a thread since its scheduler started. */
uint64_t orion_work_begun(struct orion_process *process, const struct orion_gpu *gpu);

/* Called before a launch. The state is BUSY when it returns. */
static inline enum orion_busy_change orion_busy_set(struct orion_gpu *gpu)
{
    _Atomic uint32_t *state = &gpu->busy->state;
    if (__builtin_expect(atomic_load_explicit(state, memory_order_seq_cst) == ORION_BUSY, 1)) return ORION_BUSY_SAME;
    uint32_t before = atomic_exchange_explicit(state, ORION_BUSY, memory_order_seq_cst);
    return before == ORION_IDLE ? ORION_BUSY_OPENED : before == ORION_LINGER ? ORION_BUSY_RESUMED : ORION_BUSY_SAME;
}

/* Called at the launch that begins or resumes a busy period. Learns the length of the gap. Called before the driver's
 * call, which may take longer than the gap. */
void orion_busy_began(struct orion_process *process, struct orion_gpu *gpu, enum orion_busy_change change);

/* Called after a proof: BUSY -> LINGER if all work is proven drained. */
void orion_busy_try_close(struct orion_process *process, struct orion_gpu *gpu);

/* LINGER -> IDLE: the caller knows that no launch follows soon. */
void orion_busy_end_linger(struct orion_gpu *gpu);

/* Called by hp's thread for its GPU. Returns the nanoseconds until it must be called again. */
uint64_t orion_busy_poll(struct orion_process *process, struct orion_gpu *gpu, uint64_t now);

#endif
