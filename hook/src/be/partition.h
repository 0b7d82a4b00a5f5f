/* Partitions: a be kernel runs on a part of the GPU's SMs, and hp has the others.
 *
 * The hook makes a green context that has some of the SMs, and in it a stream for each stream record. The hook moves
 * each launch separately: the hook's stream waits for all work in the program's stream, the kernel runs on the hook's
 * stream, and the program's stream waits for the kernel. So order, events, legacy-stream semantics and synchronises
 * stay those of the program's stream. Cost, measured on an H200 (docs/results/raw/partition.txt): up to 0.8 us of CPU
 * and 1 us of stream time a launch; 1-2 ms and 6 MiB once for the green context.
 *
 * The blocks of a kernel may wait for each other, also without a cooperative launch: a grid barrier of its own, a
 * persistent kernel that hands on partial results. Such a kernel spins for ever on fewer SMs than its grid needs at
 * once. So the hook moves only grids with more blocks than the whole GPU can run at once; the blocks of those cannot all
 * wait for each other. Their blocks may still wait for blocks with lower numbers, which begin first on any SMs. Rejected:
 * moving each grid of a function that has run with such a grid, because one function can have both modes; a list of
 * names, which is never complete; a time limit, because a kernel that spins cannot be stopped.
 *
 * The hook does not move graphs, because their kernels run on all SMs whatever the stream. A piece of a graph that is one
 * kernel is launched as a kernel instead (lone_kernel.h). The hook moves kernels of the primary context only, because the
 * green context shares the modules and memory of the primary context.
 *
 * Rejected: keeping successive kernels on the hook's stream. That would save most of the microsecond, but the hook
 * would have to handle every call that could see the difference. */
#ifndef ORION_PARTITION_H
#define ORION_PARTITION_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct orion_gpu;
struct orion_stream_record;
struct orion_process;

enum orion_partition_state { ORION_PARTITION_NONE = 0, ORION_PARTITION_READY = 1, ORION_PARTITION_REFUSED = 2 };

#define ORION_PARTITION_SIZES 8u /* for each GPU; each size uses GPU memory for as long as the context lives */

struct orion_partition_size {
    CUgreenCtx context;
    uint32_t sms, setting;
}; /* sms: how many SMs the context has; setting: the policy's overlap_sms that it was made for */

struct orion_partition { /* of a GPU; guarded by the ledger */
    uint32_t state;      /* enum orion_partition_state */
    struct orion_partition_size now;
    struct orion_partition_size made[ORION_PARTITION_SIZES];
    uint32_t count;
    uint64_t retry_ns; /* no other size is made before */
};

/* Where a moved launch runs. */
struct orion_elsewhere {
    CUstream stream; /* the hook's, between earlier and later work of the program's stream; NULL: the launch is not moved */
    CUevent join;    /* in this stream only, as threads may launch in streams of two sizes at the same time */
};

struct orion_partition_stream_record { /* of a stream record; made under the ledger, then used without it */
    struct orion_elsewhere elsewhere;
    CUevent fork;
    CUgreenCtx of;
    bool refused; /* not a stream of the primary context, or a stream of a green context of the program */
};

/* Whether the stream record's kernels can be moved now. Creates the green context, stream and events that the move
 * needs. */
bool orion_partition_can_move(struct orion_process *process, struct orion_stream_record *stream_record);

/* Makes the hook's stream wait for all earlier work in the stream record's stream. The caller makes the launch on it, then calls
 * orion_partition_join with what this returned: the stream record may have another stream by then, because the policy's size may
 * have changed. */
struct orion_elsewhere orion_partition_fork(struct orion_process *process, struct orion_stream_record *stream_record);
/* Called after the launch. Makes later work in the stream record's stream wait for the launch. If the driver refuses that, the thread
 * waits for the launch (order_wait.h). */
void orion_partition_join(struct orion_process *process, struct orion_stream_record *stream_record,
                          struct orion_elsewhere elsewhere);

/* Called after orion_forbid_touch, before the primary context may end. Waits for launches between fork and join, about
 * a second at most. */
void orion_partition_wait(struct orion_gpu *gpu);

/* Called when the stream record's stream or context ends. The caller holds the ledger. */
void orion_partition_forget(struct orion_stream_record *stream_record, bool context_lives);
void orion_partition_end(struct orion_process *process, struct orion_gpu *gpu); /* before the primary context ends */

#endif
