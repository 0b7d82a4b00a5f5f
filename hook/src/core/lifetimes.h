/* The wrappers call these when a context, a stream, code or the process begins or ends. */
#ifndef ORION_LIFETIMES_H
#define ORION_LIFETIMES_H

#include <cuda.h>
#include <stdbool.h>

struct orion_process;
struct orion_stream_record;

/* before cuCtxCreate*, cuDevicePrimaryCtxRetain, and cuMemCreate, which needs no context; the second one before cuGreenCtxCreate */
void orion_context_creating(CUdevice device);
void orion_green_creating(CUdevice device);
void orion_context_ending(CUcontext context);                     /* before cuCtxDestroy */
void orion_context_destroyed(CUcontext context, CUresult result); /* after it; calls orion_context_ended() */
void orion_context_detaching(void); /* before cuCtxDetach, which ends the current context or only lowers its usage count */
void orion_context_detached(CUcontext context, CUresult result);
void orion_green_ending(CUgreenCtx green);  /* before cuGreenCtxDestroy */
void orion_primary_ending(CUdevice device); /* before cuDevicePrimaryCtxReset */

/* after cuDevicePrimaryCtxRetain; before cuDevicePrimaryCtxRelease. True: this release may end the context, and the caller
 * calls orion_context_ended() after the driver's call. */
void orion_primary_retained(CUdevice device, const CUcontext *context, CUresult result);
bool orion_primary_releasing(CUdevice device);

void orion_context_ended(void); /* after the driver's call */
/* Before cuStreamDestroy. True: the caller does not call the driver, because the hook destroys the stream later. */
bool orion_stream_ending(CUstream stream);
/* From here on the hook does not use the stream's handle. hp's work continues and must still be proven. be's work counts as
 * complete. */
void orion_stream_record_ending(struct orion_process *process, struct orion_stream_record *stream_record);

void orion_module_ending(void);  /* before a module is unloaded */
void orion_library_ending(void); /* before a library is unloaded */
void orion_process_ending(void); /* at exit, before the driver's own handlers */

/* When a thread ends, or once a new thread has the place of one that has ended: the orion_stream_ended function (process.h). */
void orion_thread_stream_ended(struct orion_process *process, struct orion_stream_record *stream_record);

#endif
