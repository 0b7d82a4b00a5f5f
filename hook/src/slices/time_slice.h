/* be's time slice: beside hp it is shorter than the one that CUDA sets.
 *
 * The hook cannot interrupt a be kernel that has begun, but the GPU does so when the time slice of the kernel's channel
 * group ends. Beside 1.6 ms be kernels on an H200, hp's first kernel began after 177 us instead of 1060 us with be slices
 * of 200 us instead of 2048 us, and be's own rate beside an idle hp was the same within 1 % (docs/results/long-kernels.md).
 * A process may set the slices of its own channel groups.
 *
 * The slice is shorter only where it protects an hp and costs no switches between be clients (context-switch.md): all GPUs
 * of the process that have a role are be, none of them has a second be client that is active, and one has an hp. The hook does
 * not know which group belongs to which GPU, so all groups of the process get the same slice.
 *
 * The GPU's thread decides, at each of its wakes. It cannot set the slices, because it has not the program's descriptors
 * (agent/thread.h). So the next launch sets them, once for each change. hp's slices are CUDA's. */
#ifndef ORION_TIME_SLICE_H
#define ORION_TIME_SLICE_H

#include "slices/groups.h"

/* Called by a GPU's thread. */
void orion_time_slice_decide(struct orion_process *process);

/* Called by a launching thread if orion_time_slice_due. Keeps errno. */
void orion_time_slice_apply(struct orion_process *process);

static inline bool orion_time_slice_due(const struct orion_process *process)
{
    return __builtin_expect(atomic_load_explicit(&orion_time_slice(process)->due, memory_order_relaxed) != 0, 0);
}

#endif
