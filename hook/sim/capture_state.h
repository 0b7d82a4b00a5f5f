/* Captures under way, for the files that handle them. The mutex guards everything but the count. */
#ifndef ORION_SIM_CAPTURE_STATE_H
#define ORION_SIM_CAPTURE_STATE_H

#include <pthread.h>

#include "capture.h"
#include "graph.h"

struct sim_capture {
    uint32_t kind;
    struct sim_capture *next;
    struct CUgraph_st *graph;
    struct CUstream_st *origin;
    CUstreamCaptureMode mode;
    int thread; /* the thread that began the capture */
    uint64_t id;
    bool invalid, own_graph;
};

extern pthread_mutex_t sim_capture_mutex; /* recursive */
extern struct sim_capture *sim_captures;
extern _Atomic int sim_captures_under_way;
extern __thread CUstreamCaptureMode sim_capture_thread_mode;

int sim_capture_self(void); /* the calling thread's id */

/* Stores a copy of `nodes` as the frontier. False: out of memory. */
bool sim_capture_set_frontier(void **frontier, size_t *count, void *const *nodes, size_t node_count);

/* Adds the event's nodes to the stream's frontier. A stream outside the capture joins it. */
CUresult sim_capture_join(struct CUstream_st *stream, const struct CUevent_st *event);

/* If `stream` is the legacy stream: refuses while blocking streams are being captured, and invalidates their
 * captures. */
CUresult sim_capture_implicit(struct CUstream_st *stream);

#endif
