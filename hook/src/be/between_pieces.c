#include "be/between_pieces.h"

#include <stdatomic.h>
#include <stdint.h>

#include "be/gate.h"
#include "be/state.h"
#include "process/process.h"
#include "streams/stream_records.h"
#include "system/system.h"

#define POLL_NS (50 * ORION_MICROSECOND)
#define MOST_NS ORION_SECOND /* while the gate is open */

static _Thread_local char own; /* its address is the thread's number */

static uintptr_t holder_of(const struct orion_stream_record *stream_record)
{
    uintptr_t holder = atomic_load_explicit(&orion_be_stream_record(stream_record)->in_pieces, memory_order_acquire);
    return holder == (uintptr_t)&own ? 0 : holder;
}

static void await_others(struct orion_process *process, struct orion_stream_record *stream_record)
{
    struct orion_gpu *gpu = stream_record->gpu;
    for (uint64_t waited = 0; holder_of(stream_record) != 0 && waited < MOST_NS;) {
        if (orion_gate_closed(gpu)) {
            orion_gate_sleep(process, gpu, ORION_GATE_POLL_NS);
            continue;
        }
        orion_sleep_precisely(POLL_NS);
        waited += POLL_NS;
    }
}

void orion_between_pieces_wait(struct orion_process *process, struct orion_stream_record *stream_record)
{
    if (__builtin_expect(holder_of(stream_record) != 0, 0)) await_others(process, stream_record);
}

bool orion_between_pieces_begin(struct orion_process *process, struct orion_stream_record *stream_record)
{
    if (stream_record == NULL || orion_stream_record_is_shared(process, stream_record)) return false;
    _Atomic uintptr_t *holder = &orion_be_stream_record(stream_record)->in_pieces;
    uintptr_t none = 0;
    orion_between_pieces_wait(process, stream_record);
    return atomic_compare_exchange_strong(holder, &none, (uintptr_t)&own);
}

void orion_between_pieces_end(struct orion_stream_record *stream_record)
{
    atomic_store_explicit(&orion_be_stream_record(stream_record)->in_pieces, 0, memory_order_release);
}
