/* The wrappers call these when a context, a stream, code or the process begins or ends. */
#ifndef ORION_LIFETIMES_H
#define ORION_LIFETIMES_H

#include <cuda.h>

/* before cuCtxCreate*, cuDevicePrimaryCtxRetain, cuGreenCtxCreate, and cuMemCreate, which needs no context */
void orion_context_creating(CUdevice device);
void orion_context_ending(CUcontext context); /* before cuCtxDestroy, cuGreenCtxDestroy (context NULL) */
void orion_primary_ending(CUdevice device);   /* before cuDevicePrimaryCtxReset/Release */
void orion_context_ended(void);               /* after each driver call that the two functions above precede */
void orion_stream_ending(CUstream stream);    /* before cuStreamDestroy */
void orion_code_ending(void);                 /* before a module or a library is unloaded */
void orion_process_ending(void);              /* at exit, before the driver's own handlers */

#endif
