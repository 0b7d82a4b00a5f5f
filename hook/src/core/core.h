/* What an intercepted driver call tells the rest of the hook: the seam between the generated wrappers
 * (intercept.c, one few-line function a driver function) and the behaviour behind them.
 *
 * A wrapper knows a call's class and where its stream, event or size stands among its arguments; it knows nothing of
 * hp and be. The core knows nothing of single driver functions. Words:
 *
 *   work    a call that puts something on a stream: begins, is passed to the driver, ends
 *   proof   a call whose success shows that work has completed: a synchronise or a successful query
 *   stream record    the hook's record of one stream: how much work was begun, returned from the driver, proven drained
 *   GPU   one GPU's pages as this process sees them
 *
 * All of these may be called from any thread at any time, before the process has joined and in a forked child; they
 * return quickly then. None allocates, locks or makes a system call on the uncontended path. */
#ifndef ORION_CORE_H
#define ORION_CORE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "be/work.h"
#include "streams/stream_name.h"

/* -- Work: launches, graph launches, copies, memsets, prefetches, memory operations on streams. ---------------------- */
void orion_work_begin(struct orion_work *work);                /* before the driver's; may wait at the gate */
void orion_work_end(struct orion_work *work, CUresult result); /* after it */

/* -- Proofs of completion. ------------------------------------------------------------------------------------------ */
enum orion_proof_scope { ORION_PROOF_STREAM, ORION_PROOF_EVENT, ORION_PROOF_CONTEXT };
struct orion_proof {
    enum orion_proof_scope scope;
    bool blocks;                     /* a synchronise, not a query */
    bool of_itself;                  /* a blocking copy: the one work that the same call begins is proven as well; it is
                                        returned (orion_work_end) between proof_begin and proof_end */
    struct orion_stream_name stream; /* STREAM */
    CUevent event;                   /* EVENT */
    CUcontext context;               /* CONTEXT; NULL: the current one */
    /* The core's own. */
    struct orion_stream_record *stream_record;
    uint64_t returned;
    bool counted;
};
void orion_proof_begin(struct orion_proof *proof);
void orion_proof_end(struct orion_proof *proof, CUresult result); /* CUDA_SUCCESS proves; anything else does not */

/* -- Events: what a later wait on an event proves. Recording is work without GPU time as well (the wrapper does both). */
struct orion_recording {
    CUevent event;
    struct orion_stream_name stream;
    struct orion_stream_record *stream_record;
    uint64_t returned;
};
void orion_event_recording(struct orion_recording *recording);                 /* before the driver's cuEventRecord */
void orion_event_recorded(struct orion_recording *recording, CUresult result); /* after it */
void orion_event_ending(CUevent event);                                        /* before cuEventDestroy */

/* -- Look-ups. ------------------------------------------------------------------------------------------------------ */
void orion_unknown_function(const char *name, int version); /* a version of an intercepted function that we do not know */

#endif
