/* What the parts of the driver that deal with contexts share. */
#ifndef ORION_SIM_CONTEXT_H
#define ORION_SIM_CONTEXT_H

#include "sim.h"

/* A context with its slot and default streams; referred to once. */
CUresult sim_context_make(CUdevice device, unsigned flags, struct CUctx_st **made);
/* Waits for what is queued in it, then frees all of it. */
void sim_context_destroy(struct CUctx_st *context);
bool sim_context_alive(const struct CUctx_st *context);

/* The context that a call names, or the current one where it names none; for a green context its primary context. */
CUresult sim_context_named(CUcontext handle, struct CUctx_st **context);
/* The green context that a call names so, or that is current; NULL: none. */
struct CUgreenCtx_st *sim_green_named(CUcontext handle);
unsigned long long sim_context_new_id(void); /* never used twice */

/* Waits for what is queued in each stream, one after the other: what is queued meanwhile is not waited for. With
 * `green` not NULL only in those of that green context. */
void sim_context_wait(struct CUctx_st *context, const struct CUgreenCtx_st *green);

/* The stream of a context that comes after the one of id `after`; NULL: none. Under the lock. */
struct CUstream_st *sim_context_stream_after(const struct CUctx_st *context, const struct CUgreenCtx_st *green,
                                             unsigned long long after);

/* Its green contexts go with a context. Under the lock. */
void sim_greens_forget(struct CUctx_st *context);

#endif
