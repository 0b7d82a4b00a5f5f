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

void orion_own_streams_end(struct orion_process *process, CUcontext context, CUdevice device)
{
    for (uint32_t i = 0; i < ORION_OWN_STREAMS; i++) {
        struct orion_own_stream *own = &orion_own_streams(process)->entry[i];
        bool ends = context != NULL ? own->ends_with == context : own->device == device;
        if (atomic_load(&own->stream) != NULL && ends) atomic_store(&own->stream, NULL);
    }
}
