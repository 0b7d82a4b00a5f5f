/* The drain threads, one for each GPU. If no call of the program waits for some work (training loops, pipelines), a
 * drain thread finds out when this work is complete, so that hp does not count as busy for ever.
 *
 * A drain thread records an event behind all work of a context (cuCtxRecordEvent) and polls it until it is complete.
 * The call takes 0.1-0.4 us (measured), orders nothing and covers non-blocking streams. No stream handle of the user is
 * touched, which could be destroyed or captured meanwhile. CUDA before 12.5 has no such call; there the thread
 * synchronises the context. While the thread waits, it looks at the marks that launches left in their streams, so that
 * be sees the progress of a long queue (marks.h). Driver calls need the process's descriptors (see thread.h), so
 * these are separate threads, started only in hp processes that need them.
 *
 * Rejected: an event behind each launch (100-150 ns); a word that the GPU writes (650-750 ns); one thread for all GPUs
 * (during long work on one GPU, the thread would miss the end of work on another GPU). */
#ifndef ORION_DRAIN_H
#define ORION_DRAIN_H

#include "process/gpu.h"

void orion_drain_request(struct orion_gpu *gpu);

#endif
