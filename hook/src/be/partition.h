/* Partitions: a be kernel on a part of the GPU's SMs, so that the others are left to hp.
 *
 * A green context over some SMs gives each stream record a stream of the hook's own. A kernel is moved there launch by launch: the
 * hook's stream waits for all that the program has put into its stream, the kernel runs on the hook's, and the program's
 * stream waits for it. So the order of streams, events, legacy-stream semantics and synchronises are the program's
 * stream's own, with nothing to keep in step. Cost, measured on an H200 (docs/results/raw/partition.txt): up to 0.8 us
 * of CPU and 1 us of the stream's time a launch; 1-2 ms and 6 MiB once for the green context. Refused: keeping successive
 * kernels on the hook's stream, which saves most of that microsecond and has to chase every call that could tell the
 * difference. Graphs are not moved: their kernels run on all SMs whatever the stream.
 *
 * Only the primary context: a green context shares its modules and memory. */
#ifndef ORION_PARTITION_H
#define ORION_PARTITION_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct orion_gpu;
struct orion_stream_record;
struct orion_process;

enum orion_partition_state { ORION_PARTITION_NONE = 0, ORION_PARTITION_READY = 1, ORION_PARTITION_REFUSED = 2 };

#define ORION_PARTITION_SIZES 8u /* of a GPU: each costs memory on the GPU for as long as the context lives */

struct orion_partition_size {
    CUgreenCtx context;
    uint32_t sms, setting;
}; /* has; the policy's overlap_sms that it was made for */

struct orion_partition { /* of a GPU; guarded by the ledger */
    uint32_t state;      /* enum orion_partition_state */
    struct orion_partition_size now;
    struct orion_partition_size made[ORION_PARTITION_SIZES];
    uint32_t count;
};

struct orion_partition_stream_record { /* of a stream record; made under the ledger, then used without it */
    CUstream stream;
    CUevent fork, join;
    CUgreenCtx of;
    bool refused; /* not a stream of the primary context */
};

/* Whether the stream record's kernels can be moved now; makes what they need. */
bool orion_partition_can(struct orion_process *process, struct orion_stream_record *stream_record);

/* The stream to launch on, ordered behind all that the stream record's stream holds, and there until the join; NULL: it cannot be
 * had. */
CUstream orion_partition_fork(struct orion_process *process, struct orion_stream_record *stream_record);
void orion_partition_join(struct orion_stream_record *stream_record,
                          CUstream stream); /* after the launch: what follows in the stream record's stream waits for it */

/* After orion_forbid_touch, before the primary context may end: waits, boundedly, for launches between fork and join. */
void orion_partition_rest(struct orion_gpu *gpu);

void orion_partition_forget(struct orion_stream_record *stream_record,
                            bool context_lives); /* the stream record's stream or context ends; under the ledger */
void orion_partition_end(struct orion_gpu *gpu); /* before the primary context ends */

#endif
