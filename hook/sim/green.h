/* Green contexts: a part of a GPU's SMs within the primary context.
 *
 * Streams, events, memory and kernels all belong to the primary context. A stream of a green context has fewer SMs; the
 * shared state knows nothing else of green contexts. cuCtxFromGreenCtx returns a second CUctx_st, the green context's
 * name. Calls with this name act on the primary context, except for queries of streams or SMs. */
#ifndef ORION_SIM_GREEN_H
#define ORION_SIM_GREEN_H

#include "sim.h"

struct CUgreenCtx_st {
    uint32_t kind;
    struct CUgreenCtx_st *next;     /* of the same primary context */
    struct CUctx_st *context;       /* the primary context, which it retains */
    struct CUctx_st *name;          /* what cuCtxFromGreenCtx returns */
    struct CUstream_st *legacy;     /* its default stream, not ordered with any other */
    struct CUstream_st *everything; /* a hidden stream in which events of the whole green context are recorded */
    struct sim_sms sms;
    unsigned long long id;
};

/* What cuDevResourceGenerateDesc returns. It lives as long as the process. */
struct CUdevResourceDesc_st {
    uint32_t kind;
    int device;
    struct sim_sms sms;
};

/* Describe a set of SMs to the program, in the resource itself. The program may split such a set. */
CUresult sim_resource_describe(CUdevResource *resource, CUdevResourceType type, int device, const struct sim_sms *sms);

#endif
