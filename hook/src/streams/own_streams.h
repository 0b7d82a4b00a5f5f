/* The hook's own streams, each with its owner. For clients that are threads, an own stream replaces the default stream
 * (threads/redirect.h).
 *
 * The hook never destroys an own stream, because a thread that has just read the handle may still use it. The stream
 * ends with its context. Until then a later scheduler reuses it. */
#ifndef ORION_OWN_STREAMS_H
#define ORION_OWN_STREAMS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdint.h>

#include "process/process.h"

#define ORION_OWN_STREAMS 64u /* one for each client in each context; streams of earlier schedulers count */
#define ORION_NO_CLIENT UINT32_MAX

struct orion_process;

struct orion_own_stream {
    _Atomic(CUstream) stream; /* written last; NULL: free */
    CUcontext context;
    CUcontext ends_with; /* of a green context: the primary context; else the same */
    CUdevice device;
    uint32_t client, role; /* client: ORION_NO_CLIENT for a stream that stands for the legacy stream: threads/redirect.c */
};
struct orion_own_streams { struct orion_own_stream entry[ORION_OWN_STREAMS]; };
ORION_PART(own_streams)

/* The number of the client that owns the stream, + 1; 0: it is not an own stream. */
uint32_t orion_owner_of(struct orion_process *process, CUstream stream);

/* A context ends together with its streams. The driver's call that ends a primary context names only the device: NULL if the handle of the
 * context is not known. Then the streams of all contexts on the device are forgotten, and the hook creates others. */
void orion_own_streams_end(struct orion_process *process, CUcontext context, CUdevice device);

#endif
