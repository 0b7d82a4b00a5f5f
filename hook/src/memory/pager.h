/* The pager: for each turn of a slot whose memory moves (unified.h), it has the pages come to the GPU, so that the kernels of
 * the turn need not fetch them by page faults.
 *
 * The turns are those of the plan in the slot's grant (process/plan.h). A prefetch begins so long before the turn as the last one
 * took; the first one as long as the slowest link takes; none longer before than a turn lasts, because the memory of the turn before must
 * fit beside. Where two such slots would not fit, it begins with the turn. A turn may begin earlier than planned, when another slot hands its turn back.
 * So launches wait at the begin of a turn until its pages have come, for a bounded part of the turn: a prefetch is several times as
 * fast as page faults, and page faults would keep the link busy into the next turn. The prefetch moves memory in steps, and ends with
 * the turn. Durations of kernels that may have waited for pages are not learnt. A slot without a plan competes with nobody, and turns
 * are short while the memory of all slots fits: both need no pager.
 *
 * The pager is a thread of its own for each GPU, because the thread that serves the agent makes no driver call (agent/thread.h).
 * It uses the context of the last allocation, and rests from the end of any context until the next allocation: which
 * context an address belongs to, the hook does not know. Then launches do not wait.
 *
 * Rejected: a prefetch in the launch that begins a turn (it takes as long as the copy of gigabytes); a prefetch in front of the
 * launches in their stream (several streams, and a kernel of another one would fault before); a prefetch at every allocation (the
 * driver may drive out what another slot has just brought). */
#ifndef ORION_PAGER_H
#define ORION_PAGER_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdint.h>

#include "process/process.h"

struct orion_pager {
    _Atomic uint32_t runs;       /* 1: its thread was started */
    _Atomic uint32_t epoch;      /* process->context_epoch + 1 when the context was noted; 0: none was */
    _Atomic(CUcontext) context;  /* written before the epoch */
    _Atomic uint64_t fits_twice; /* a slot with more memory than this has its pages come at the begin of its turn */
    CUstream stream;             /* the thread's own; valid while stream_epoch is the epoch */
    uint32_t stream_epoch;
    uint64_t end_ns; /* of the turn for which the pages were fetched last */
};
struct orion_pagers { struct orion_pager of[ORION_GPUS]; /* by device */ };
ORION_PART(pagers)

/* After an allocation on the device in the current context. Starts the thread unless it runs. */
void orion_pager_start(struct orion_process *process, CUdevice device);

#endif
