/* What an intercepted driver call tells the rest of the hook: the seam between the generated wrappers
 * (intercept.c, one few-line function a driver function) and the behaviour behind them.
 *
 * A wrapper knows a call's class and where its stream, event or size stands among its arguments; it knows nothing of
 * hp and be. The core knows nothing of single driver functions. Words:
 *
 *   work    a call that puts something on a stream: begins, is passed to the driver, ends
 *   proof   a call whose success shows that work has completed: a synchronise or a successful query
 *   lane    the hook's record of one stream: how much work was begun, returned from the driver, proven drained
 *   board   one GPU's pages as this process sees them
 *
 * All of these may be called from any thread at any time, before the process has joined and in a forked child; they
 * return quickly then. None allocates, locks or makes a system call on the uncontended path. */
#ifndef ORION_CORE_H
#define ORION_CORE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct orion_lane;

/* Handle 0 means the legacy or the calling thread's default stream, depending on the variant that was called. */
struct orion_stream_name {
    CUstream handle;
    bool per_thread; /* the call was a _ptsz or _ptds variant */
};

/* -- Work: launches, graph launches, copies, memsets, prefetches, memory operations on streams. ---------------------- */
/* What is launched: a kernel (function, whichever of CUfunction and CUkernel it is) or an executable graph; else empty. */
struct orion_launch {
    const void *function, *graph;
    uint64_t blocks;          /* of the whole grid */
    uint32_t threads;         /* of a block */
    uint32_t shared_bytes;    /* dynamic */
};
struct orion_work {
    struct orion_stream_name stream;
    struct orion_launch launch;
    bool movable;             /* the wrapper launches on `elsewhere` if the core has set it */
    uint64_t identity;        /* of identity.h: work of one identity takes about the same time; 0: takes no GPU time
                                 (an event record, a wait, a host function): ordered work that is neither gated nor
                                 counted in the window */
    /* The core's own, set by orion_work_begin. */
    struct orion_lane *lane;  /* NULL: not managed, or being captured */
    uint64_t expected_ns;
    uint32_t flags;
    uint32_t collective;      /* its number; 0: none. See collective.h */
    CUstream elsewhere;       /* a stream of the hook's own, joined with `stream` before and after; see partition.h */
};
void orion_work_begin(struct orion_work *work);                 /* before the driver's; may wait at the gate */
void orion_work_end(struct orion_work *work, CUresult result);  /* after it */

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
    struct orion_lane *lane;
    uint64_t returned;
    bool counted;
};
void orion_proof_begin(struct orion_proof *proof);
void orion_proof_end(struct orion_proof *proof, CUresult result); /* CUDA_SUCCESS proves; anything else does not */

/* -- Events: what a later wait on an event proves. Recording is work without GPU time as well (the wrapper does both). */
struct orion_recording { CUevent event; struct orion_stream_name stream; struct orion_lane *lane; uint64_t returned; };
void orion_event_recording(struct orion_recording *recording);                 /* before the driver's cuEventRecord */
void orion_event_recorded(struct orion_recording *recording, CUresult result); /* after it */
void orion_event_ending(CUevent event);                                        /* before cuEventDestroy */

/* -- Captures. Between changing and changed no thread of the hook touches a context (a record would spoil a capture). -- */
void orion_capture_changing(void);                        /* before cuStreamBeginCapture*, cuStreamEndCapture */
enum orion_capture_change { ORION_CAPTURE_BEGUN, ORION_CAPTURE_ENDED };
void orion_capture_changed(enum orion_capture_change change, CUresult result);
/* (an EndCapture that fails with a status other than an unbegun capture has ended it too: the core sorts that out) */

/* -- Lifetimes. ----------------------------------------------------------------------------------------------------- */
void orion_context_creating(CUdevice device);  /* before cuCtxCreate*, cuDevicePrimaryCtxRetain, cuGreenCtxCreate */
void orion_context_ending(CUcontext context);  /* before cuCtxDestroy, cuGreenCtxDestroy (context NULL) */
void orion_primary_ending(CUdevice device);    /* before cuDevicePrimaryCtxReset/Release */
void orion_context_ended(void);                /* after any of these */
int orion_stream_priority(int priority);       /* the one that a new stream gets; see priorities.c */
void orion_stream_ending(CUstream stream);     /* before cuStreamDestroy */
void orion_code_ending(void);                  /* before a module or a library is unloaded */

/* -- Executable graphs: what they are made of; after the driver's call, but for the last. ---------------------------- */
void orion_graph_made(CUgraphExec exec, CUgraph graph); /* instantiated from it, or updated by it */
void orion_graph_node_set(CUgraphExec exec, CUgraphNode node, uint64_t identity); /* NONE: nothing that matters */
void orion_graph_child_set(CUgraphExec exec, CUgraphNode node, CUgraph child);
void orion_graph_node_enabled(CUgraphExec exec, CUgraphNode node, bool enabled);
void orion_graph_ending(CUgraphExec exec);

/* -- Device memory: limits of the grant and their accounting. ------------------------------------------------------- */
bool orion_memory_reserve(uint64_t bytes);                      /* false: over the limit; answer OUT_OF_MEMORY */
void orion_memory_reserved(uint64_t bytes, uint64_t key, CUresult result); /* after the driver's; key: address or handle */
void orion_memory_released(uint64_t key, CUresult result);      /* after a free; the size is remembered by key */
void orion_memory_info(size_t *free_bytes, size_t *total_bytes);/* after a successful cuMemGetInfo: the slot's view */

/* -- Look-ups. ------------------------------------------------------------------------------------------------------ */
void orion_unknown_function(const char *name, int version); /* a version of an intercepted function that we do not know */

#endif
