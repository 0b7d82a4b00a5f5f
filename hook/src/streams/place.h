/* Where a stream is: its context and its device.
 *
 * A program's green context can be current to one thread at a time. So no thread makes one current for the hook; the
 * hook uses the primary context instead, to which the streams and events of a green context belong, too. */
#ifndef ORION_PLACE_H
#define ORION_PLACE_H

#include <cuda.h>
#include <stdbool.h>

/* The driver orders the work of the legacy stream with that of the blocking streams of its context. */
enum orion_stream_order {
    ORION_ORDER_NONE = 0,
    ORION_ORDER_LEGACY = 1,
    ORION_ORDER_BLOCKING = 2,
    ORION_ORDER_UNKNOWN = 4 /* so far the stream has only been captured */
};

struct orion_place {
    CUcontext context, green; /* see struct orion_stream_record */
    CUdevice device;
    enum orion_stream_order order; /* orion_stream_place leaves it out */
};

/* `named`: the stream's context, as the driver names it. False: the place is unknown. That is so for a stream of a green
 * context that is not current, if the driver is older than CUDA 12.5: such a driver cannot say where the stream is. */
bool orion_stream_place(CUstream handle, CUcontext named, struct orion_place *place);

/* The primary context of a device; NULL: it is not active. */
CUcontext orion_primary_of(CUdevice device);

#endif
