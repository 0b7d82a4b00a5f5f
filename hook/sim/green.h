/* Green contexts: a part of a GPU's SMs within the primary context.
 *
 * Streams, events, memory and kernels all belong to the primary context. A stream of a green context has fewer SMs; the
 * shared state knows nothing else of green contexts. cuCtxFromGreenCtx returns a second CUctx_st, which this code
 * calls the green context's name. A call with this handle acts on the primary context. Only a query of streams or SMs
 * answers for the green context.
 *
 * A green context can be current to one thread at a time (CUDA's documentation of cuGreenCtxCreate). The documentation
 * does not say what happens otherwise; this code refuses it with CUDA_ERROR_INVALID_CONTEXT, so that tests notice. */
#ifndef ORION_SIM_GREEN_H
#define ORION_SIM_GREEN_H

#include "sim.h"

struct CUgreenCtx_st {
    uint32_t kind;
    struct CUgreenCtx_st *next;     /* the next green context of the same primary context */
    struct CUctx_st *context;       /* the primary context, which the green context retains */
    struct CUctx_st *name;          /* what cuCtxFromGreenCtx returns */
    struct CUstream_st *legacy;     /* its default stream, which is not ordered with any other stream */
    struct CUstream_st *everything; /* a hidden stream in which events of the whole green context are recorded */
    struct sim_sms sms;
    unsigned long long id;
};

/* The object that cuDevResourceGenerateDesc returns. It exists until the process ends. */
struct CUdevResourceDesc_st {
    uint32_t kind;
    int device;
    struct sim_sms sms;
};

/* Called when a context enters and leaves the calling thread's stack of contexts. False: the context is a green context
 * that another living thread has in its stack. */
bool sim_green_enter(struct CUctx_st *context);
void sim_green_leave(struct CUctx_st *context);

/* Store a set of SMs in `resource`, so that the program can read the set and split it. */
CUresult sim_resource_describe(CUdevResource *resource, CUdevResourceType type, int device, const struct sim_sms *sms);

#endif
