#include "streams/own_streams.h"

#include "process/process.h"

uint32_t orion_owner_of(struct orion_process *process, CUstream stream)
{
    if ((uintptr_t)stream <= 2) return 0;
    for (uint32_t i = 0; i < ORION_OWN_STREAMS; i++) {
        struct orion_own_stream *own = &orion_own_streams(process)->entry[i];
        if (atomic_load_explicit(&own->stream, memory_order_acquire) == stream) return own->client + 1;
    }
    return 0;
}

void orion_own_streams_end(struct orion_process *process, CUcontext context)
{
    for (uint32_t i = 0; i < ORION_OWN_STREAMS; i++) {
        struct orion_own_stream *own = &orion_own_streams(process)->entry[i];
        if (atomic_load(&own->stream) != NULL && own->context == context) atomic_store(&own->stream, NULL);
    }
}

/* Forgets the streams of all contexts on that GPU. A client rarely has a context besides the primary one. If it has,
 * the hook creates another own stream there. */
void orion_own_streams_end_on(struct orion_process *process, CUdevice device)
{
    for (uint32_t i = 0; i < ORION_OWN_STREAMS; i++) {
        struct orion_own_stream *own = &orion_own_streams(process)->entry[i];
        if (atomic_load(&own->stream) != NULL && own->device == device) atomic_store(&own->stream, NULL);
    }
}
