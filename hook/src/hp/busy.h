/* hp busy: the word in the busy page that says whether this process has work on the GPU.
 *
 * A launch adds to its stream record's `begun`, sets BUSY unless it is, calls the driver, adds to `returned`. A proof raises
 * `drained`. Whoever closes goes BUSY -> CLOSING and to LINGER only if for every stream record `drained` (read first) equals
 * `begun` (read after); a launch meanwhile turns CLOSING back to BUSY, so the closer's last exchange fails. Only one
 * thread closes at a time: with two, one could end a CLOSING that the other began after new work. All these accesses
 * are sequentially consistent. hook/test/test_busy.c hammers it; refused, with counter-examples: clearing first and
 * undoing, and a proof that reads `begun`. */
#ifndef ORION_BUSY_H
#define ORION_BUSY_H

#include <stdint.h>

#include "process/gpu.h"

struct orion_stream_record;
struct orion_process;

enum orion_busy_change { ORION_BUSY_SAME = 0, ORION_BUSY_OPENED = 1, ORION_BUSY_RESUMED = 2 };

/* Before a launch: BUSY from here on. */
static inline enum orion_busy_change orion_busy_set(struct orion_gpu *gpu)
{
    _Atomic uint32_t *state = &gpu->busy->state;
    if (__builtin_expect(atomic_load_explicit(state, memory_order_seq_cst) == ORION_BUSY, 1)) return ORION_BUSY_SAME;
    uint32_t before = atomic_exchange_explicit(state, ORION_BUSY, memory_order_seq_cst);
    return before == ORION_IDLE ? ORION_BUSY_OPENED : before == ORION_LINGER ? ORION_BUSY_RESUMED : ORION_BUSY_SAME;
}

/* At the launch that begins a busy period or goes on with it, before the driver's call (which may take longer than the
 * gap): learn the gap. */
void orion_busy_began(struct orion_process *process, struct orion_gpu *gpu, enum orion_busy_change change);

/* After a proof: BUSY -> LINGER if all work is proven drained. */
void orion_busy_try_close(struct orion_process *process, struct orion_gpu *gpu);

/* The thread's look at one GPU; returns when it should look again (nanoseconds from now). */
uint64_t orion_busy_attend(struct orion_process *process, struct orion_gpu *gpu, uint64_t now);

#endif
