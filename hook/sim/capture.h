/* How captures affect the rest of the driver. */
#ifndef ORION_SIM_CAPTURE_H
#define ORION_SIM_CAPTURE_H

#include "sim.h"

/* For calls that wait, query or allocate. If the mode of a capture under way forbids these calls to this thread,
 * returns an error and invalidates that capture. */
CUresult sim_capture_unsafe(void);

/* For calls that synchronise or query a stream. Refuses if the stream is being captured, and invalidates that
 * capture. */
CUresult sim_capture_check_use(struct CUstream_st *stream);

/* For calls that queue work in a stream. Refuses the legacy stream while a blocking stream is being captured. Also
 * refuses a stream whose capture is already invalid. */
CUresult sim_capture_touches(struct CUstream_st *stream);

/* Was the event's last record in a capture that is still under way? */
bool sim_capture_of_event(const struct CUevent_st *event);
CUresult sim_capture_event_use(struct CUevent_st *event);
CUresult sim_capture_record(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags);
CUresult sim_capture_wait(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags);
/* Refuses an operation that cannot be captured, and invalidates the capture. */
CUresult sim_capture_refuse(struct CUstream_st *stream);
/* Does the same for each captured stream of the context, or of `green` if that is not NULL. Returns success if none of
 * these streams is being captured. */
CUresult sim_capture_refuse_context(struct CUctx_st *context, struct CUgreenCtx_st *green);
/* Invalidates the capture of a stream that is destroyed. */
void sim_capture_leave(struct CUstream_st *stream);
/* Ends the captures that began in a context that ends. */
void sim_capture_end_in(const struct CUctx_st *context);
void sim_capture_forget_frontier(void **frontier, size_t *count);

#endif
