/* The interface between the generated wrappers (intercept.c, a few lines for each driver function) and the rest of the
 * hook.
 *
 * A wrapper knows the class of its call, and which argument is the stream, event or size. It knows nothing of hp and
 * be. The core knows nothing of single driver functions. Words:
 *
 *   work           a call that puts something on a stream: begins, is passed to the driver, ends
 *   proof          a call whose success shows that work has completed: a synchronise or a successful query
 *   stream record  the hook's record of one stream: how much work was begun, returned from the driver, proven drained
 *   GPU            one GPU's pages as this process sees them
 *
 * Any thread may call these functions at any time. Before the process has joined and in a forked child they return
 * quickly. On the uncontended path no function allocates, locks or makes a system call. */
#ifndef ORION_CORE_H
#define ORION_CORE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "be/work.h"
#include "process/absence.h"
#include "streams/stream_name.h"

/* -- Work: launches, graph launches, copies, memsets, prefetches, memory operations on streams. ---------------------- */
void orion_work_begin(struct orion_work *work);                /* before the driver's call; may wait at the gate */
void orion_work_end(struct orion_work *work, CUresult result); /* after the driver's call */

/* Called between begin and the driver's call, for admitted work, if the driver blocks until the work's turn comes in its
 * stream. Sleeps while hp holds the stream's work, because the driver would spin. The work's place in the stream is not
 * affected: what the stream had before is in the driver already. */
void orion_work_blocks(struct orion_work *work);

/* Called after end, for an admitted copy from the host's memory that the program takes for complete. Waits until it is, if be has been
 * held meanwhile. */
void orion_work_settles(const struct orion_work *work);
static inline bool orion_work_is_admitted(const struct orion_work *work) { return work->expected_ns != 0; }

/* Before a call that puts something on a stream that takes no GPU time: a host function, a word, memory of a pool. The hook neither
 * gates nor counts it. Events have functions of their own, which do the same. */
void orion_operation_begin(struct orion_stream_name stream);
void orion_operation_end(struct orion_stream_name stream); /* after a call that may make the stream wait */

/* As orion_present_try, but waits until the process is back, unless it exits. `process` may be NULL. */
enum orion_presence orion_present_begin(struct orion_process *process);

/* -- Proofs of completion. ------------------------------------------------------------------------------------------ */
enum orion_proof_scope { ORION_PROOF_STREAM, ORION_PROOF_EVENT, ORION_PROOF_CONTEXT };
struct orion_proof {
    enum orion_proof_scope scope;
    bool blocks; /* a synchronise, not a query */
    /* True for a blocking copy: the call also proves the work that it begins itself. For that work, orion_work_end runs
     * between orion_proof_begin and orion_proof_end. */
    bool of_itself;
    struct orion_stream_name stream; /* STREAM */
    CUevent event;                   /* EVENT */
    CUcontext context;               /* CONTEXT; NULL: the current context */
    /* Set by the core. */
    struct orion_stream_record *stream_record;
    uint64_t returned;
    uint32_t waits; /* of the stream; see be/driver_order.h */
    bool counted;
};
void orion_proof_begin(struct orion_proof *proof);
void orion_proof_end(struct orion_proof *proof, CUresult result); /* only CUDA_SUCCESS proves work */

/* -- Events: what a later wait on an event proves. ------------------------------------------------------------------ */
struct orion_recording {
    CUevent event;
    struct orion_stream_name stream;
    bool external; /* in a capture, it becomes a node of the graph */
    struct orion_stream_record *stream_record;
    uint64_t returned;
    uint32_t number; /* see be/event_words.h */
    uint32_t waits;  /* see be/driver_order.h */
};
void orion_event_recording(struct orion_recording *recording);                 /* before the driver's cuEventRecord */
void orion_event_recorded(struct orion_recording *recording, CUresult result); /* after the driver's call */
void orion_event_awaited(CUevent event, struct orion_stream_name stream);      /* before the driver's cuStreamWaitEvent */
void orion_event_ending(CUevent event);                                        /* before cuEventDestroy */
void orion_event_elsewhere(CUevent event); /* something else than a call for a stream records the event: recordings.h */
void orion_event_in_node(const CUgraphNodeParams *parameters); /* perhaps of a node that records an event */

/* -- Look-ups. ------------------------------------------------------------------------------------------------------ */
/* Called when the program looks up a function of the driver, or a version of it, that the hook does not know. */
void orion_unknown_function(const char *name);

#endif
