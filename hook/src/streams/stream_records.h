/* Stream records: the hook's record of streams, and how work on them is counted.
 *
 * Each stream record counts the work that was begun (before the driver's call), returned (after it) and proven drained. A proof
 * reads `returned` before the driver's synchronise and raises `drained` to it after, so work that another thread was
 * just handing over is never taken for done. The counters only grow, also when a stream record passes to another stream: what
 * an old event remembers of an earlier stream proves nothing wrong.
 *
 * A stream record is found by the stream's handle, a default stream by its context or its thread. The table is open-addressed
 * and lock-free; when it is full, a GPU's streams share one overflow stream record, which context-wide proofs drain. */
#ifndef ORION_STREAM_RECORDS_H
#define ORION_STREAM_RECORDS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "process/process.h"
#include "streams/stream_name.h"

#define ORION_STREAM_RECORDS 1024u
#define ORION_STREAM_RECORD_BE 864u /* bytes */

enum orion_stream_record_state {
    ORION_STREAM_RECORD_FREE = 0,
    ORION_STREAM_RECORD_CLAIMED = 1,
    ORION_STREAM_RECORD_READY = 2,
    ORION_STREAM_RECORD_ENDED = 3
};

struct orion_gpu;

struct orion_stream_record {
    _Atomic uint64_t begun, returned, drained;
    _Atomic uint32_t state; /* enum orion_stream_record_state */
    uint64_t key;           /* written while claimed */
    CUcontext context;
    _Atomic(struct orion_gpu *) gpu; /* NULL until claimed */
    struct orion_stream_name stream;
    uint64_t begun_before;                                /* a threads' client: `begun` when it had the stream record first */
    _Atomic(CUevent) last;                                /* a threads' client: behind the work of a stream that was destroyed */
    _Alignas(8) unsigned char be[ORION_STREAM_RECORD_BE]; /* what be keeps for the stream record: see be/state.h */
} __attribute__((aligned(128)));

struct orion_stream_records {
    _Atomic uint32_t overflowed; /* some GPU's overflow stream record is in use: walks begin at 0, else behind those */
    _Atomic uint32_t high_water; /* stream records beyond were never used */
    struct orion_stream_record entry[ORION_STREAM_RECORDS];
};
ORION_PART(stream_records)

struct orion_process;
/* The stream's stream record, on a managed GPU; NULL where the stream's context or GPU is unknown. */
struct orion_stream_record *orion_stream_record_of(struct orion_process *process, struct orion_stream_name stream);
uint32_t orion_stream_record_index(const struct orion_process *process, const struct orion_stream_record *stream_record);

/* Whether it is an overflow stream record: what is known of it is known of no single stream, nor has it a handle. */
bool orion_stream_record_is_shared(const struct orion_process *process, const struct orion_stream_record *stream_record);

/* Where a walk over the stream records in use begins; it ends before high_water. */
uint32_t orion_stream_records_begin(const struct orion_process *process);

/* The handle by which any thread can name the stream record's stream (but for another thread's default stream). */
CUstream orion_stream_record_handle(const struct orion_stream_record *stream_record);

/* Raises drained to `returned`, never lowers it; counts as progress of the stream record's GPU. */
void orion_stream_record_prove(struct orion_stream_record *stream_record, uint64_t returned);

#endif
