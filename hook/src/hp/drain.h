/* The drain threads, one for each GPU: they prove work complete that nobody synchronises on (training loops, pipelines).
 *
 * One records an event behind all that a context has been given (cuCtxRecordEvent; measured: 0.1-0.4 us, orders nothing,
 * covers non-blocking streams) and looks at it until it is complete: no cost on the launch path, and no stream handle of
 * the user's is touched, which may be destroyed or captured meanwhile. Threads of their own, started only in hp processes
 * that need them, because driver calls need the process's descriptors (see thread.h). Before CUDA 12.5 there is no such
 * call, and it synchronises the context instead. Refused: an event behind each launch (100-150 ns), a word that the GPU
 * writes (650-750 ns); one thread for all GPUs (long work on one would hide the end of work on another). */
#ifndef ORION_DRAIN_H
#define ORION_DRAIN_H

#include "process/gpu.h"

void orion_drain_want(struct orion_gpu *gpu);

#endif
