#include "be/driver_order.h"

#include <stdatomic.h>
#include <stdint.h>

#include "be/state.h"
#include "process/process.h"
#include "streams/stream_records.h"

/* So many launches are held after one that waits in the driver. So a program that mixes its streams all the time stays in this state,
 * and one that does so now and then runs ahead of the GPU in between. */
#define AFTER_CROSSING 256u

/* What a stream awaits of another one is one word: a record's index + 1 in the top 16 bits, and below them how many of its launches had
 * begun when the wait came; 0: nothing. So no reader combines the record of one wait with the count of another. A wait counts in
 * `ordered` only after its word is there, so who sees the count sees the word. */
#define COUNT_BITS 48u
#define COUNT_MASK ((UINT64_C(1) << COUNT_BITS) - 1)

static _Atomic uint64_t *awaited_of(const struct orion_stream_record *stream_record)
{
    return orion_be_stream_record(stream_record)->awaited;
}

static bool is_over(const struct orion_process *process, uint64_t awaited)
{
    if (awaited == 0) return true;
    const struct orion_stream_record *source = &orion_stream_records(process)->entry[(awaited >> COUNT_BITS) - 1];
    return atomic_load(&source->drained) >= (awaited & COUNT_MASK);
}

static bool waits(const struct orion_process *process, const struct orion_stream_record *stream_record)
{
    for (unsigned i = 0; i < ORION_AWAITED; i++)
        if (!is_over(process, atomic_load(&awaited_of(stream_record)[i]))) return true;
    return false;
}

/* Whether the stream waits for work of its context's streams of the other kind that was begun since its last look, and is not known
 * to be complete. Work is counted once it has begun, so who sees the count sees the work. */
static bool crosses(struct orion_process *process, struct orion_stream_record *stream_record)
{
    enum orion_stream_order other = ORION_ORDER_LEGACY + ORION_ORDER_BLOCKING - stream_record->order;
    _Atomic uint64_t *seen = &orion_be_stream_record(stream_record)->others_seen;
    uint64_t begun = atomic_load(&orion_be(stream_record->gpu)->ordered[other]);
    if (atomic_load_explicit(seen, memory_order_relaxed) == begun) return false;
    atomic_store_explicit(seen, begun, memory_order_relaxed);
    ORION_EACH_STREAM_RECORD(each, process, stream_record->gpu) {
        if (each == stream_record || !orion_stream_records_are_ordered(stream_record, each)) continue;
        if (!orion_stream_record_is_drained(each) || waits(process, each)) return true;
    }
    return false;
}

static bool is_ordered(const struct orion_stream_record *stream_record)
{
    return stream_record->order == ORION_ORDER_LEGACY || stream_record->order == ORION_ORDER_BLOCKING;
}

static void look(struct orion_process *process, struct orion_stream_record *stream_record)
{
    if (is_ordered(stream_record) && crosses(process, stream_record))
        atomic_store_explicit(&orion_be(stream_record->gpu)->ordered_launches, AFTER_CROSSING, memory_order_relaxed);
}

void orion_driver_order_begun(const struct orion_stream_record *stream_record)
{
    if (is_ordered(stream_record)) atomic_fetch_add(&orion_be(stream_record->gpu)->ordered[stream_record->order], 1);
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

/* A later wait for the same stream replaces the earlier one. */
static void add(const struct orion_process *process, struct orion_stream_record *stream_record, uint64_t wait)
{
    uint64_t source = wait >> COUNT_BITS;
    for (unsigned i = 0; i < ORION_AWAITED && !is_over(process, wait); i++) {
        _Atomic uint64_t *place = &awaited_of(stream_record)[i];
        uint64_t held = atomic_load(place);
        while (held >> COUNT_BITS == source ? held < wait : is_over(process, held)) {
            atomic_fetch_add(&orion_be_stream_record(stream_record)->waits, 1); /* before the word: see orion_driver_order_over */
            if (atomic_compare_exchange_strong(place, &held, wait)) return;
        }
        if (held >> COUNT_BITS == source) return;
    }
}

/* The event comes behind the source's own waits, too. */
void orion_driver_order_awaits(const struct orion_process *process, struct orion_stream_record *stream_record,
                               const struct orion_stream_record *source)
{
    if (source == stream_record) return;
    add(process, stream_record,
        (uint64_t)(orion_stream_record_index(process, source) + 1) << COUNT_BITS | atomic_load(&source->begun));
    for (unsigned i = 0; i < ORION_AWAITED; i++) add(process, stream_record, atomic_load(&awaited_of(source)[i]));
}

uint32_t orion_driver_order_waits(const struct orion_stream_record *stream_record)
{
    return atomic_load(&orion_be_stream_record(stream_record)->waits);
}

/* Erases only words that were there before the count was read again. */
void orion_driver_order_over(struct orion_stream_record *stream_record, uint32_t waits)
{
    uint64_t held[ORION_AWAITED];
    for (unsigned i = 0; i < ORION_AWAITED; i++) held[i] = atomic_load(&awaited_of(stream_record)[i]);
    if (orion_driver_order_waits(stream_record) != waits) return;
    for (unsigned i = 0; i < ORION_AWAITED; i++)
        if (held[i] != 0) atomic_compare_exchange_strong(&awaited_of(stream_record)[i], &held[i], 0);
}

void orion_driver_order_forget(struct orion_stream_record *stream_record)
{
    orion_driver_order_over(stream_record, orion_driver_order_waits(stream_record));
    atomic_store_explicit(&orion_be_stream_record(stream_record)->others_seen, 0, memory_order_relaxed);
}
