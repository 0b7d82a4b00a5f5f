/* What a capture changes in the rest of the driver. */
#ifndef ORION_SIM_CAPTURE_H
#define ORION_SIM_CAPTURE_H

#include "sim.h"

/* Calls that wait, ask or allocate: refused while a capture whose mode forbids them to this thread is under way, which
 * that invalidates. */
CUresult sim_capture_unsafe(void);

/* Synchronising or asking a stream: refused if it is being captured, which that invalidates. */
CUresult sim_capture_check_use(struct CUstream_st *stream);

/* Queuing in a stream: refused in the legacy stream while a blocking stream is being captured, and in a capture that is
 * invalid already. */
CUresult sim_capture_touches(struct CUstream_st *stream);

/* Was the event last recorded in a capture that is still under way? */
bool sim_capture_of_event(const struct CUevent_st *event);
CUresult sim_capture_event_use(struct CUevent_st *event);
CUresult sim_capture_record(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags);
CUresult sim_capture_wait(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags);
/* An operation that cannot be captured: invalidates the capture. */
CUresult sim_capture_refuse(struct CUstream_st *stream);
/* The same for all captures of a context's streams, or of its green context's; success if there are none. */
CUresult sim_capture_refuse_context(struct CUctx_st *context, struct CUgreenCtx_st *green);
/* A stream that is destroyed leaves its capture invalid. */
void sim_capture_leave(struct CUstream_st *stream);
void sim_capture_forget_frontier(void **frontier, size_t *count);

#endif
