/* A be client's state for each GPU and each stream record. struct orion_gpu and struct orion_stream_record reserve the
 * bytes. */
#ifndef ORION_BE_STATE_H
#define ORION_BE_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "be/chunks.h"
#include "be/driver_order.h"
#include "be/gpu_clock.h"
#include "be/partition.h"
#include "be/usage.h"
#include "be/valve.h"
#include "process/gpu.h"
#include "streams/stream_records.h"

struct orion_be {
    struct orion_valve valve;         /* see valve.c */
    struct orion_partition partition; /* see partition.c */
    _Atomic uint32_t moving;          /* launches between the partition's fork and join */
    _Atomic uint32_t published;       /* hp: number of launches shown in the busy page's `current` so far */

    /* See window.c */
    _Atomic uint64_t in_flight_ns;
    _Atomic uint32_t ledger; /* a lock, held while a thread updates chunks; see orion_ledger_try_lock */
    /* Guarded by the ledger: time of the last wait for the window; for how long launches have waited since work last
     * completed, without the time for which hp held the work; time of the last look for completed work; when the work began behind
     * which work went that did not fit into the window, and how much. */
    uint64_t waited_ns, stuck_ns, looked_ns, awaiting_begun_ns, behind_ns;
    _Atomic uint32_t awaits_program; /* written under the ledger: some work does, at the last look; see in_flight.c */
    _Atomic uint32_t quiet;          /* threads that wait for an empty context, or call the driver with one; see quiet.h */
    _Atomic uint64_t mixed_ns;       /* when a graph with branches last waited too long; see admission.c */
    uint32_t kept_streams;           /* guarded by the ledger; see ends.c */
    uint32_t stream_records_at_work; /* guarded by the ledger: stream records with work in flight, at the last check */
    _Atomic uint64_t head_ns;        /* when the oldest work in flight began to run, estimated; written under the ledger */

    /* Guarded by the ledger; see accounts.c, chunks.c */
    struct orion_usage usage;
    struct orion_gpu_clock clock;

    _Atomic uint32_t in_pieces; /* streams of the GPU in which a thread launches a graph in pieces; see between_pieces.c */
    /* See driver_order.c */
    _Atomic uint64_t ordered[3];       /* launches and other operations in streams of each enum orion_stream_order */
    _Atomic uint32_t ordered_launches; /* so many more are held on the CPU */

    /* See turns.c */
    _Atomic uint64_t handed_back_ns, asked_ns; /* when this client last sent each message */
    _Atomic uint64_t patience_ns;
    _Atomic uint64_t turn_ended_ns; /* when its last turn ended; 0: it goes on */
    _Atomic uint64_t resumed_ns;    /* when stops first opened after that */
};
_Static_assert(sizeof(struct orion_be) <= ORION_GPU_BE, "ORION_GPU_BE is too small");

static inline struct orion_be *orion_be(const struct orion_gpu *gpu) { return (struct orion_be *)(uintptr_t)gpu->be; }

struct orion_be_stream_record {
    struct orion_chunks chunks;
    struct orion_partition_stream_record partition;
    /* See valve.c; the first is guarded by the ledger */
    uint64_t past_valve_ns; /* expected time of the work launched since the last wait */
    /* The valve's epoch when that wait was put into the stream, + 1; 0: no wait, or a launch may have gone without the ledger. */
    _Atomic uint32_t waited_epoch;
    _Atomic uintptr_t in_pieces;  /* the thread that launches a graph in pieces; 0: none. See between_pieces.h */
    _Atomic uint32_t under_way;   /* other launches that go before the next graph in pieces */
    _Atomic uint64_t waits_since; /* when the thread came that has waited longest for graphs in pieces; 0: none waits */
    /* See driver_order.c */
    _Atomic uint64_t others_seen;            /* launches and operations of the other order at the last look */
    _Atomic uint32_t waits;                  /* so many waits for other streams were put into this one */
    _Atomic uint64_t awaited[ORION_AWAITED]; /* the work of other streams for which this one waits */
    bool kept;                               /* the program has destroyed the stream, and the driver has not; see ends.c */
    uint32_t meeting;                        /* see meetings.c; the launching thread writes it */
};
_Static_assert(sizeof(struct orion_be_stream_record) <= ORION_STREAM_RECORD_BE, "ORION_STREAM_RECORD_BE is too small");

static inline struct orion_be_stream_record *orion_be_stream_record(const struct orion_stream_record *stream_record)
{
    return (struct orion_be_stream_record *)(uintptr_t)stream_record->be;
}

#endif
