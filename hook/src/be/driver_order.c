#include "be/driver_order.h"

#include <stdatomic.h>
#include <stdint.h>

#include "be/state.h"
#include "process/process.h"
#include "streams/stream_records.h"

/* So many launches are held after one that waits in the driver. So a program that mixes its streams all the time stays in this state,
 * and one that does so now and then runs ahead of the GPU in between. */
#define AFTER_CROSSING 256u

/* Whether the stream waits for work of the other kind that was launched since its last look, and is not known to be complete. A launch
 * is counted once it has begun, so who sees the count sees the work. */
static bool crosses(struct orion_process *process, struct orion_stream_record *stream_record)
{
    enum orion_stream_order other = ORION_ORDER_LEGACY + ORION_ORDER_BLOCKING - stream_record->order;
    _Atomic uint64_t *seen = &orion_be_stream_record(stream_record)->others_seen;
    uint64_t launches = atomic_load(&orion_be(stream_record->gpu)->ordered[other]);
    if (atomic_load_explicit(seen, memory_order_relaxed) == launches) return false;
    atomic_store_explicit(seen, launches, memory_order_relaxed);
    ORION_EACH_STREAM_RECORD(each, process, stream_record->gpu) {
        if (each->order == other && atomic_load(&each->drained) != atomic_load(&each->begun)) return true;
    }
    return false;
}

void orion_driver_order_begun(const struct orion_stream_record *stream_record)
{
    if (stream_record->order != ORION_ORDER_NONE) atomic_fetch_add(&orion_be(stream_record->gpu)->ordered[stream_record->order], 1);
}

bool orion_driver_order_matters(struct orion_process *process, struct orion_stream_record *stream_record)
{
    struct orion_be *be = orion_be(stream_record->gpu);
    if (stream_record->order != ORION_ORDER_NONE && crosses(process, stream_record))
        atomic_store_explicit(&be->ordered_launches, AFTER_CROSSING, memory_order_relaxed);
    uint32_t left = atomic_load_explicit(&be->ordered_launches, memory_order_relaxed);
    if (left > 0) atomic_store_explicit(&be->ordered_launches, left - 1, memory_order_relaxed); /* other threads may lose some */
    return left > 0;
}
