/* How a call names its stream. */
#ifndef ORION_STREAM_NAME_H
#define ORION_STREAM_NAME_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* Handle 0 is the legacy default stream or the calling thread's default stream, depending on the called variant. */
struct orion_stream_name {
    CUstream handle;
    bool per_thread; /* the call was a _ptsz or _ptds variant */
};

/* A default stream is another stream in each context. */
static inline bool orion_stream_is_default(CUstream handle) { return (uintptr_t)handle <= 2; }
static inline bool orion_stream_is_per_thread(struct orion_stream_name stream)
{
    return stream.handle == CU_STREAM_PER_THREAD || (stream.handle == NULL && stream.per_thread);
}

/* The same stream's handle in calls of every variant, from the same thread. */
static inline CUstream orion_stream_handle(struct orion_stream_name stream)
{
    if (stream.handle != NULL) return stream.handle;
    return stream.per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

#endif
