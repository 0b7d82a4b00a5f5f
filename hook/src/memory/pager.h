/* The pager: before each turn of a slot whose memory moves (unified.h), it has the pages come to the GPU, so that the kernels of
 * the turn need not fetch them by page faults.
 *
 * The turns are those of the plan in the slot's grant (process/plan.h). A prefetch begins so long before the turn as the last one
 * took; the first one as long as the slowest link takes. One that was late begins earlier the next time, so that page faults cannot
 * keep the link busy for good. It moves memory in steps, and ends with the turn at the latest; what is then not on the GPU comes by page
 * faults. Launches never wait for it. A slot without a plan competes with nobody and needs no pager.
 *
 * The pager is a thread of its own for each GPU, because the thread that serves the agent makes no driver call (agent/thread.h).
 * It uses the context of the last allocation, and rests from the end of any context until the next allocation: which
 * context an address belongs to, the hook does not know.
 *
 * Rejected: a prefetch in the launch that begins a turn (it takes as long as the copy of gigabytes); a prefetch at every allocation
 * (the driver may drive out what another slot has just brought). */
#ifndef ORION_PAGER_H
#define ORION_PAGER_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdint.h>

#include "process/process.h"

struct orion_pager {
    _Atomic uint32_t runs;      /* 1: its thread was started */
    _Atomic uint32_t epoch;     /* process->context_epoch + 1 when the context was noted; 0: none was */
    _Atomic(CUcontext) context; /* written before the epoch */
    CUstream stream;            /* the thread's own; valid while stream_epoch is the epoch */
    uint32_t stream_epoch;
    _Atomic uint64_t begin_ns; /* of the turn for which the pages were fetched last */
    uint64_t end_ns;
    _Atomic uint64_t took_ns; /* how long that took */
};
struct orion_pagers { struct orion_pager of[ORION_GPUS]; /* by device */ };
ORION_PART(pagers)

/* After an allocation on the device in the current context. Starts the thread unless it runs. */
void orion_pager_start(struct orion_process *process, CUdevice device);

#endif
