#include "streams/client_order.h"

#include "generated/driver.h"
#include "streams/capture.h"
#include "streams/own_streams.h"

static bool is_own(struct orion_process *process, const struct orion_stream_record *stream_record)
{
    return orion_owner_of(process, orion_stream_record_handle(stream_record)) != 0;
}

void orion_client_order_found(struct orion_process *process, const struct orion_stream_record *stream_record)
{
    if (stream_record->order == ORION_ORDER_BLOCKING)
        atomic_fetch_or(&orion_client_orders(process)->used, UINT32_C(1) << stream_record->gpu->client);
}

void orion_client_order_begin(struct orion_process *process, const struct orion_stream_record *stream_record)
{
    uint32_t index = orion_stream_record_index(process, stream_record);
    struct orion_client_orders *orders = orion_client_orders(process);
    atomic_store(&orders->seen[index].by_own.returned, 0);
    atomic_store(&orders->seen[index].by_own.operations, atomic_load(&orders->operations[index]));
    atomic_store(&orders->seen[index].of_own.returned, 0);
    atomic_store(&orders->seen[index].of_own.operations, 0);
}

void orion_client_order_operated(struct orion_process *process, const struct orion_stream_record *stream_record)
{
    atomic_fetch_add(&orion_client_orders(process)->operations[orion_stream_record_index(process, stream_record)], 1);
}

/* A launch that is still in the driver is not waited for, and counts as new later. */
static void follow(struct orion_process *process, const struct orion_stream_record *stream_record,
                   const struct orion_stream_record *other, struct orion_seen *seen)
{
    uint64_t returned = atomic_load(&other->returned);
    uint32_t operations = atomic_load(&orion_client_orders(process)->operations[orion_stream_record_index(process, other)]);
    bool works = !orion_stream_record_is_drained(other) && atomic_load(&seen->returned) != returned + 1;
    if (!works && atomic_load(&seen->operations) == operations) return;
    if (orion_capture_records(process, orion_stream_record_name(other))) return;
    struct orion_relaxed relaxed = orion_capture_relax();
    CUevent event = orion_stream_record_event(other, CU_EVENT_DISABLE_TIMING);
    if (event != NULL) {
        if (orion_driver.cuEventRecord(event, orion_stream_record_handle(other)) == CUDA_SUCCESS &&
            orion_driver.cuStreamWaitEvent(orion_stream_record_handle(stream_record), event, 0) == CUDA_SUCCESS) {
            atomic_store(&seen->returned, returned + 1);
            atomic_store(&seen->operations, operations);
        }
        orion_driver.cuEventDestroy_v2(event);
    }
    orion_capture_unrelax(&relaxed);
}

static void follow_all(struct orion_process *process, const struct orion_stream_record *stream_record, bool own)
{
    struct orion_client_orders *orders = orion_client_orders(process);
    if (orion_capture_records(process, orion_stream_record_name(stream_record))) return;
    ORION_EACH_STREAM_RECORD(other, process, stream_record->gpu) {
        if (atomic_load(&other->state) != ORION_STREAM_RECORD_READY || other->context != stream_record->context) continue;
        if (other->green != stream_record->green) continue;
        const struct orion_stream_record *blocking = own ? other : stream_record;
        if (blocking->order != ORION_ORDER_BLOCKING || (!own && !is_own(process, other))) continue;
        uint32_t index = orion_stream_record_index(process, blocking);
        follow(process, stream_record, other, own ? &orders->seen[index].by_own : &orders->seen[index].of_own);
    }
}

void orion_client_order_put(struct orion_process *process, const struct orion_stream_record *stream_record)
{
    bool own = is_own(process, stream_record);
    if (own || stream_record->order == ORION_ORDER_BLOCKING) follow_all(process, stream_record, own);
}

void orion_client_order_put_before_own(struct orion_process *process, const struct orion_stream_record *stream_record)
{
    if (is_own(process, stream_record)) follow_all(process, stream_record, true);
}

/* NULL: the client has none in the stream's context. It may have launched nothing there yet. */
static const struct orion_stream_record *own_beside(struct orion_process *process, const struct orion_own_stream *own,
                                                    const struct orion_stream_record *stream_record)
{
    CUstream stream = atomic_load_explicit(&own->stream, memory_order_acquire);
    if (stream == NULL || own->client + 1 != stream_record->gpu->client || own->ends_with != stream_record->context) return NULL;
    const struct orion_stream_record *found = orion_stream_record_of(process, (struct orion_stream_name){stream, false});
    return found != NULL && found->context == stream_record->context && found->green == stream_record->green ? found : NULL;
}

void orion_client_order_ending(struct orion_process *process, const struct orion_stream_record *stream_record)
{
    struct orion_seen *seen = &orion_client_orders(process)->seen[orion_stream_record_index(process, stream_record)].by_own;
    if (stream_record->order != ORION_ORDER_BLOCKING || !orion_client_order_matters(process, stream_record)) return;
    for (uint32_t i = 0; i < ORION_OWN_STREAMS; i++) {
        const struct orion_stream_record *own = own_beside(process, &orion_own_streams(process)->entry[i], stream_record);
        if (own != NULL && !orion_capture_records(process, orion_stream_record_name(own)))
            follow(process, own, stream_record, seen);
    }
}
