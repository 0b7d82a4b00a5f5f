#include "be/driver_order.h"

#include <stdatomic.h>
#include <stdint.h>

#include "be/state.h"
#include "process/process.h"
#include "streams/stream_records.h"

/* So many launches are held after one that waits in the driver. So a program that mixes its streams all the time stays in this state,
 * and one that does so now and then runs ahead of the GPU in between. */
#define AFTER_CROSSING 256u

/* Whether the stream may wait for another one, of which only its later launches show that this is over. */
static bool may_await(const struct orion_stream_record *stream_record)
{
    return atomic_load(&orion_be_stream_record(stream_record)->awaits_until) > atomic_load(&stream_record->drained);
}

/* Whether the stream waits for work of the other kind that was begun since its last look, and is not known to be complete. Work is
 * counted once it has begun, so who sees the count sees the work. */
static bool crosses(struct orion_process *process, struct orion_stream_record *stream_record)
{
    enum orion_stream_order other = ORION_ORDER_LEGACY + ORION_ORDER_BLOCKING - stream_record->order;
    _Atomic uint64_t *seen = &orion_be_stream_record(stream_record)->others_seen;
    uint64_t begun = atomic_load(&orion_be(stream_record->gpu)->ordered[other]);
    bool any = false, waits = false;
    if (atomic_load_explicit(seen, memory_order_relaxed) == begun) return false;
    atomic_store_explicit(seen, begun, memory_order_relaxed);
    ORION_EACH_STREAM_RECORD(each, process, stream_record->gpu) {
        bool in_flight = atomic_load(&each->drained) != atomic_load(&each->begun);
        if (each->order == other && in_flight) return true;
        any |= in_flight;
        waits |= each->order == other && may_await(each);
    }
    return any && waits;
}

static void look(struct orion_process *process, struct orion_stream_record *stream_record)
{
    if (stream_record->order != ORION_ORDER_NONE && crosses(process, stream_record))
        atomic_store_explicit(&orion_be(stream_record->gpu)->ordered_launches, AFTER_CROSSING, memory_order_relaxed);
}

void orion_driver_order_begun(const struct orion_stream_record *stream_record)
{
    if (stream_record->order != ORION_ORDER_NONE) atomic_fetch_add(&orion_be(stream_record->gpu)->ordered[stream_record->order], 1);
}

bool orion_driver_order_matters(struct orion_process *process, struct orion_stream_record *stream_record)
{
    struct orion_be *be = orion_be(stream_record->gpu);
    look(process, stream_record);
    uint32_t left = atomic_load_explicit(&be->ordered_launches, memory_order_relaxed);
    if (left > 0) atomic_store_explicit(&be->ordered_launches, left - 1, memory_order_relaxed); /* other threads may lose some */
    return left > 0;
}

void orion_driver_order_operation(struct orion_process *process, struct orion_stream_record *stream_record)
{
    look(process, stream_record);
    orion_driver_order_begun(stream_record);
}

void orion_driver_order_awaits(struct orion_stream_record *stream_record, const struct orion_stream_record *source)
{
    if (stream_record->order == ORION_ORDER_NONE || atomic_load(&source->drained) == atomic_load(&source->begun)) return;
    atomic_store(&orion_be_stream_record(stream_record)->awaits_until, atomic_load(&stream_record->begun) + 1);
}
