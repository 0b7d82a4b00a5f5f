/* Functions shared by the files that handle contexts. */
#ifndef ORION_SIM_CONTEXT_H
#define ORION_SIM_CONTEXT_H

#include "sim.h"

/* Make a context with its entry in the shared state, its default streams and one reference. */
CUresult sim_context_make(CUdevice device, unsigned flags, struct CUctx_st **made);
/* Waits for the work queued in the context, then frees everything in it. */
void sim_context_destroy(struct CUctx_st *context);
bool sim_context_alive(const struct CUctx_st *context);

/* Find the context that a call names, or the current context if the call names none. For a green context, find its
 * primary context. */
CUresult sim_context_named(CUcontext handle, struct CUctx_st **context);
#define SIM_CONTEXT_NAMED(name, handle) \
    SIM_CALL(); \
    struct CUctx_st *name; \
    SIM_TRY(sim_context_named(handle, &name))
/* The green context that a call names, or the current one if the call names none; NULL: none. */
struct CUgreenCtx_st *sim_green_named(CUcontext handle);
unsigned long long sim_context_new_id(void); /* ids are never reused */

/* Waits for the work queued in each stream, one stream after another, but not for work that is queued meanwhile. If
 * `green` is not NULL, waits only for the streams of that green context. */
void sim_context_wait(struct CUctx_st *context, const struct CUgreenCtx_st *green);

/* Waits for the work queued in the context. Meanwhile the context keeps the GPU's time slices, like one whose stream waits for
 * an event. So does the driver of an H200 where it loads code, or gives kernels more local memory
 * (measurements/probes/blocked_calls.c). Does nothing while a stream of the context is being captured. */
void sim_context_settle(struct CUctx_st *context);
/* Settles the context if the kernel's code is not on the GPU yet, and loads it. */
void sim_context_load(struct CUctx_st *context, struct sim_kernel *kernel);

/* The stream of a context with the lowest id above `after`; NULL: none. Under the lock. */
struct CUstream_st *sim_context_stream_after(const struct CUctx_st *context, const struct CUgreenCtx_st *green,
                                             unsigned long long after);

/* Removes the green contexts of a context that ends. Under the lock. */
void sim_greens_forget(struct CUctx_st *context);

#endif
