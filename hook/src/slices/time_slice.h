/* Time slices other than CUDA's (2048 us), if the policy asks for them: a shorter one for be, a longer one for hp.
 *
 * The hook cannot interrupt a be kernel that has begun, but the GPU does so when the time slice of the kernel's channel
 * group ends. So with a be slice of 200 us, an hp request begins sooner beside long be kernels. The kernel then takes turns
 * with hp until it has ended: hp loses time at the end of each of its own slices, which a longer one prevents
 * (docs/results/long-kernels.md). A process may set the slices of its own channel groups.
 *
 * be's slice changes only where that protects an hp and costs no switches between be clients (context-switch.md): no second be
 * client of the GPU is active. hp's slice changes only beside be, and if the GPU has no second hp client, which would wait
 * for it. All GPUs of the process that have a role must have the same one: the hook does not know which group belongs to
 * which GPU, so all groups of the process get the same slice.
 *
 * The GPU's thread decides, at each of its wakes. It cannot set the slices, because it has not the program's descriptors
 * (agent/thread.h). So the next launch sets them, once for each change. */
#ifndef ORION_TIME_SLICE_H
#define ORION_TIME_SLICE_H

#include "slices/groups.h"

/* Called by a GPU's thread. */
void orion_time_slice_decide(struct orion_process *process);

/* Called by a launching thread if orion_time_slice_due. Keeps errno. */
void orion_time_slice_apply(struct orion_process *process);

static inline bool orion_time_slice_due(const struct orion_process *process)
{
    return atomic_load_explicit(&process->errands, memory_order_relaxed) & ORION_ERRAND_SLICES;
}

#endif
