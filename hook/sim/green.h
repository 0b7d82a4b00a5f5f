/* Green contexts: a part of a GPU's SMs within the primary context.
 *
 * Streams, events, memory and kernels are all the primary context's; a stream of a green context has fewer SMs, which
 * is all that the shared state knows of it. What cuCtxFromGreenCtx returns is a name: calls that take it act on the
 * primary context, but for those that ask which streams or SMs. */
#ifndef ORION_SIM_GREEN_H
#define ORION_SIM_GREEN_H

#include "sim.h"

struct CUgreenCtx_st {
    uint32_t kind;
    struct CUgreenCtx_st *next;     /* of the same primary context */
    struct CUctx_st *context;       /* the primary context, which it retains */
    struct CUctx_st *name;          /* what cuCtxFromGreenCtx returns */
    struct CUstream_st *legacy;     /* its default stream, in order with no other */
    struct CUstream_st *everything; /* a hidden stream: where events of the whole green context are recorded */
    struct sim_sms sms;
    unsigned long long id;
};

/* What cuDevResourceGenerateDesc returns; it lives as long as the process. */
struct CUdevResourceDesc_st {
    uint32_t kind;
    int device;
    struct sim_sms sms;
};

/* Describe a set of SMs to the program, in the resource itself. Such a set may be split. */
CUresult sim_resource_describe(CUdevResource *resource, CUdevResourceType type, int device, const struct sim_sms *sms);

#endif
