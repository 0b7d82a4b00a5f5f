/* Lanes: the hook's record of streams, and how work on them is counted.
 *
 * Each lane counts the work that was begun (before the driver's call), returned (after it) and proven drained. A proof
 * reads `returned` before the driver's synchronise and raises `drained` to it after, so work that another thread was
 * just handing over is never taken for done. The counters only grow, also when a lane passes to another stream: what
 * an old event remembers of an earlier stream proves nothing wrong.
 *
 * A lane is found by the stream's handle, a default stream by its context or its thread. The table is open-addressed
 * and lock-free; when it is full, a board's streams share one overflow lane, which context-wide proofs drain. */
#ifndef ORION_LANES_H
#define ORION_LANES_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core.h"
#include "be/chunks.h"
#include "be/partition.h"

#define ORION_LANES 1024u

enum orion_lane_state { ORION_LANE_FREE = 0, ORION_LANE_CLAIMED = 1, ORION_LANE_READY = 2, ORION_LANE_ENDED = 3 };

struct orion_board;

struct orion_lane {
    _Atomic uint64_t begun, returned, drained;
    _Atomic uint32_t state; /* enum orion_lane_state */
    uint64_t key;           /* written while claimed */
    CUcontext context;
    _Atomic(struct orion_board *) board; /* NULL until claimed */
    struct orion_stream_name stream;
    struct orion_chunks chunks;                   /* be */
    uint64_t begun_before;                        /* a threads' client: `begun` when it had the lane first */
    _Atomic(CUevent) last;                        /* a threads' client: behind the work of a stream that was destroyed */
    struct orion_partition_lane partition;        /* be */
    uint64_t past_valve_ns; uint32_t valve_epoch; /* be, guarded by the ledger: launched since the last wait; see valve.c */
} __attribute__((aligned(128)));

struct orion_lanes {
    _Atomic uint32_t overflowed; /* some board's overflow lane is in use: walks begin at 0, else behind those */
    _Atomic uint32_t high_water; /* lanes beyond were never used */
    struct orion_lane lane[ORION_LANES];
};

struct orion_process;
/* The stream's lane, on a managed board; NULL where the stream's context or board is unknown. */
struct orion_lane *orion_lane_of(struct orion_process *process, struct orion_stream_name stream);
uint32_t orion_lane_index(const struct orion_process *process, const struct orion_lane *lane);

/* Whether it is an overflow lane: what is known of it is known of no single stream, nor has it a handle. */
bool orion_lane_is_shared(const struct orion_process *process, const struct orion_lane *lane);

/* Where a walk over the lanes in use begins; it ends before high_water. */
uint32_t orion_lanes_begin(const struct orion_process *process);

/* The handle by which any thread can name the lane's stream (but for another thread's default stream). */
CUstream orion_lane_handle(const struct orion_lane *lane);

/* Raises drained to `returned`, never lowers it; counts as progress of the lane's board. */
void orion_lane_prove(struct orion_lane *lane, uint64_t returned);

#endif
