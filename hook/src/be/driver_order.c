#include "be/driver_order.h"

#include <stdatomic.h>
#include <stdint.h>

#include "be/state.h"
#include "process/process.h"
#include "streams/stream_records.h"
#include "system/system.h"

/* So many launches are held after one that waits in the driver. So a program that mixes its streams all the time stays in this state,
 * and one that does so now and then runs ahead of the GPU in between. */
#define AFTER_CROSSING 256u

static bool has_work(const struct orion_stream_record *stream_record)
{
    return atomic_load(&stream_record->drained) != atomic_load(&stream_record->begun);
}

/* Whether `count` differs from that of the stream's last launch. */
static bool has_grown(struct orion_stream_record *stream_record, uint64_t count)
{
    _Atomic uint64_t *last = &orion_be_stream_record(stream_record)->ordered_behind;
    if (atomic_load_explicit(last, memory_order_relaxed) == count) return false;
    atomic_store_explicit(last, count, memory_order_relaxed);
    return true;
}

static bool follows_blocking(struct orion_process *process, struct orion_stream_record *legacy)
{
    struct orion_be *be = orion_be(legacy->gpu);
    if (atomic_load_explicit(&be->legacy, memory_order_relaxed) != legacy) atomic_store(&be->legacy, legacy);
    if (!has_grown(legacy, atomic_load(&be->blocking_launches))) return false;
    ORION_EACH_STREAM_RECORD(other, process, legacy->gpu) {
        if (other != legacy && orion_stream_records_are_ordered(legacy, other) && has_work(other)) return true;
    }
    return false;
}

static bool follows_legacy(struct orion_stream_record *blocking)
{
    struct orion_be *be = orion_be(blocking->gpu);
    atomic_fetch_add(&be->blocking_launches, 1);
    const struct orion_stream_record *legacy = atomic_load(&be->legacy);
    if (legacy == NULL || !orion_stream_records_are_ordered(blocking, legacy)) return false;
    return has_grown(blocking, atomic_load(&legacy->begun)) && has_work(legacy);
}

bool orion_driver_order_matters(struct orion_process *process, struct orion_stream_record *stream_record)
{
    struct orion_be *be = orion_be(stream_record->gpu);
    bool crosses = stream_record->order == ORION_ORDER_LEGACY     ? follows_blocking(process, stream_record)
                   : stream_record->order == ORION_ORDER_BLOCKING ? follows_legacy(stream_record)
                                                                  : false;
    if (crosses) atomic_store_explicit(&be->ordered_launches, AFTER_CROSSING, memory_order_relaxed);
    uint32_t left = atomic_load_explicit(&be->ordered_launches, memory_order_relaxed);
    if (left > 0) atomic_store_explicit(&be->ordered_launches, left - 1, memory_order_relaxed); /* other threads may lose some */
    return left > 0;
}
