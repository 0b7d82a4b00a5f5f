/* Streams of the hook's own that stand for default streams of clients that are threads (threads/redirect.h): whose each is.
 *
 * One is never destroyed but with its context, and used again by a later scheduler: a thread that has just fetched the
 * handle may use it. */
#ifndef ORION_OWN_STREAMS_H
#define ORION_OWN_STREAMS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdint.h>

#include "process/process.h"

#define ORION_OWN_STREAMS 64u /* clients times contexts, those of earlier schedulers included */

struct orion_process;

struct orion_own_stream {
    _Atomic(CUstream) stream; /* written last; NULL: free */
    CUcontext context;
    CUdevice device;
    uint32_t client, role;
};
struct orion_own_streams { struct orion_own_stream entry[ORION_OWN_STREAMS]; };
ORION_PART(own_streams)

/* Whose stream it is: client + 1, or 0. */
uint32_t orion_owner_of(struct orion_process *process, CUstream stream);

/* A context ends, and with it its streams; or the primary context of a GPU, whose handle the call does not name. */
void orion_own_streams_end(struct orion_process *process, CUcontext context);
void orion_own_streams_end_on(struct orion_process *process, CUdevice device);

#endif
