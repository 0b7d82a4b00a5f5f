/* Clients that are threads: keeps the order between a client's default stream and its blocking streams.
 *
 * The driver orders the legacy stream with all blocking streams, which are those of cudaStreamCreate, and CuPy's and Numba's. The client's
 * own stream, which replaces the legacy one, is not blocking (threads/redirect.h). So before each call on the one, the hook makes that stream
 * wait for the other one's work, and for what it waits for: an event, a value, a function on the host.
 *
 * Threads of no client pay one comparison for it, and clients without blocking streams one more. */
#ifndef ORION_CLIENT_ORDER_H
#define ORION_CLIENT_ORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "process/gpu.h"
#include "process/process.h"
#include "streams/stream_records.h"

/* The last wait that one stream has for another: the other one's `returned`, + 1, and `operations`. 0: none was. */
struct orion_seen {
    _Atomic uint64_t returned;
    _Atomic uint32_t operations;
};

struct orion_client_orders {
    _Atomic uint32_t used; /* bit i: the client has a blocking stream whose `client` in struct orion_gpu is i */
    /* By the index of a stream record: calls other than launches that may make the stream wait. It only grows, as the counters of the record do,
     * but does not tell when they are complete. */
    _Atomic uint32_t operations[ORION_STREAM_RECORDS];
    /* Of a blocking stream, by the index of its record: what the own stream waits for, and what this stream waits for in the own one. */
    struct { struct orion_seen by_own, of_own; } seen[ORION_STREAM_RECORDS];
};
ORION_PART(client_orders)

/* Whether it matters to some client. */
static inline bool orion_client_order_is_used(const struct orion_process *process)
{
    return atomic_load_explicit(&orion_client_orders(process)->used, memory_order_relaxed) != 0;
}

static inline bool orion_client_order_matters(const struct orion_process *process, const struct orion_stream_record *stream_record)
{
    uint32_t client = stream_record->gpu->client;
    if (__builtin_expect(client == 0, 1)) return false;
    return atomic_load_explicit(&orion_client_orders(process)->used, memory_order_relaxed) >> client & 1;
}

/* Called with the record of a stream that a client uses, when the hook has found it, and when another stream has got it. */
void orion_client_order_found(struct orion_process *process, const struct orion_stream_record *stream_record);
void orion_client_order_begin(struct orion_process *process, const struct orion_stream_record *stream_record);

/* After a call other than a launch that may make the client's stream wait. Counted also before the client has a blocking stream. */
void orion_client_order_operated(struct orion_process *process, const struct orion_stream_record *stream_record);

/* Makes the stream wait. The second one only if it is an own stream: the legacy stream is idle when all blocking streams are. */
void orion_client_order_put(struct orion_process *process, const struct orion_stream_record *stream_record);
void orion_client_order_put_before_own(struct orion_process *process, const struct orion_stream_record *stream_record);

/* Before the stream is destroyed. Its work runs on, and no later call can name it. So the own stream waits for it now. */
void orion_client_order_ending(struct orion_process *process, const struct orion_stream_record *stream_record);

/* Before a call that puts something into the stream. */
static inline void orion_client_order_keep(struct orion_process *process, const struct orion_stream_record *stream_record)
{
    if (orion_client_order_matters(process, stream_record)) orion_client_order_put(process, stream_record);
}

#endif
