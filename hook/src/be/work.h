/* Work: a call that puts something on a stream, from before the driver's call to after it. */
#ifndef ORION_WORK_H
#define ORION_WORK_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "be/partition.h"
#include "learning/launch.h"
#include "streams/stream_name.h"

struct orion_stream_record;
struct orion_stop;

struct orion_work {
    struct orion_stream_name stream;
    struct orion_launch launch;
    bool movable;      /* the wrapper launches `elsewhere` if the core has set it */
    uint64_t identity; /* see identity.h: work of one identity takes about the same time */
    /* Set by the core in orion_work_begin. */
    struct orion_stream_record *stream_record; /* NULL: not managed, or being captured */
    uint64_t expected_ns;
    uint64_t admitted_ns; /* when be's gate let the work pass */
    uint32_t flags;
    uint32_t collective;           /* the collective's number; 0: none. See collective.h */
    uint32_t meeting, arrival;     /* a collective's stream, and its number in this stream; 0: none. See meetings.h */
    const struct orion_stop *stop; /* the stop that claims the work; NULL: the stop of its GPU's hp. See stop.h */
    struct orion_elsewhere elsewhere;
};

/* Must be called before work->identity is read; see ORION_IDENTITY_UNREAD. */
static inline void orion_work_identify(struct orion_process *process, struct orion_work *work)
{
    if (work->identity == ORION_IDENTITY_UNREAD) work->identity = orion_launch_identity(process, &work->launch);
}

#endif
