/* The origins of the open captures: each is the stream on which the program began a capture.
 *
 * A capture also ends without cuStreamEndCapture: with its origin, with the thread whose default stream that is, and with the
 * origin's context, as when a program resets the device after an error. So a count alone would never fall again. A stream that
 * has joined a capture ends nothing when it is destroyed, but the driver says only that it captures, not where its capture began.
 *
 * process->captures is their number: launches read this one word. It also counts captures that the table has no room for. */
#ifndef ORION_CAPTURE_ORIGINS_H
#define ORION_CAPTURE_ORIGINS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdint.h>

#include "process/process.h"
#include "streams/stream_name.h"

#define ORION_CAPTURE_ORIGINS 32u

struct orion_capture_origin {
    CUstream handle;   /* NULL: the entry is free */
    uintptr_t thread;  /* of a per-thread default stream: its thread; else 0 */
    CUcontext context; /* as the driver names it: of a stream of a green context, the green one */
    CUdevice primary;  /* the device whose primary context it is, or belongs to; -1: none */
};

struct orion_capture_origins {
    _Atomic uint32_t lock;
    uint32_t unlisted; /* captures that were begun while the table was full: only cuStreamEndCapture ends them */
    struct orion_capture_origin entry[ORION_CAPTURE_ORIGINS];
};
ORION_PART(capture_origins)

void orion_capture_origin_began(struct orion_process *process, struct orion_stream_name stream);
void orion_capture_origin_ended(struct orion_process *process, struct orion_stream_name stream);

/* The captures that began on a stream, in a context, or in a device's primary context end with it. */
void orion_capture_origin_destroyed(struct orion_process *process, CUstream stream);
void orion_capture_origins_end_thread(struct orion_process *process); /* of the calling thread's own default streams */
void orion_capture_origins_end_in(struct orion_process *process, CUcontext context);
void orion_capture_origins_end_in_primary(struct orion_process *process, CUdevice device);

#endif
