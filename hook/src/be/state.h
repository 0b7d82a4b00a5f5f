/* What a be client keeps for each GPU and each stream record, in the bytes that these have for it. */
#ifndef ORION_BE_STATE_H
#define ORION_BE_STATE_H

#include <stdatomic.h>
#include <stdint.h>

#include "be/chunks.h"
#include "be/partition.h"
#include "be/valve.h"
#include "process/gpu.h"
#include "streams/stream_records.h"

struct orion_be {
    struct orion_valve valve;         /* see valve.c */
    struct orion_partition partition; /* see partition.c */
    _Atomic uint32_t moving;          /* launches on their way to the partition */
    _Atomic uint32_t published;       /* hp: launches that the busy page's `current` has shown so far */

    /* See window.c */
    _Atomic uint64_t in_flight_ns;
    _Atomic uint32_t ledger;         /* taken while stream records' chunks are kept; see orion_ledger_take */
    uint64_t waited_ns, moved_ns;    /* guarded by the ledger: the last wait for the window; when work last completed */
    uint32_t stream_records_at_work; /* guarded by the ledger: stream records with work in flight, at the last look */
    uint64_t head_ns;                /* guarded by the ledger: when the oldest work in flight began to run, estimated */
};
_Static_assert(sizeof(struct orion_be) <= ORION_GPU_BE, "ORION_GPU_BE is too small");

static inline struct orion_be *orion_be(const struct orion_gpu *gpu) { return (struct orion_be *)(uintptr_t)gpu->be; }

struct orion_be_stream_record {
    struct orion_chunks chunks;
    struct orion_partition_stream_record partition;
    /* Guarded by the ledger; see valve.c */
    uint64_t past_valve_ns; /* launched since the last wait */
    uint32_t waited_epoch;  /* the valve's epoch when that wait was put into the stream, + 1; 0: none stands there */
};
_Static_assert(sizeof(struct orion_be_stream_record) <= ORION_STREAM_RECORD_BE, "ORION_LANE_BE is too small");

static inline struct orion_be_stream_record *orion_be_stream_record(const struct orion_stream_record *stream_record)
{
    return (struct orion_be_stream_record *)(uintptr_t)stream_record->be;
}

#endif
