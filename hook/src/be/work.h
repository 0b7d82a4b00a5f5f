/* Work: a call that puts something on a stream, from before the driver's call to after it. */
#ifndef ORION_WORK_H
#define ORION_WORK_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "learning/launch.h"
#include "streams/stream_name.h"

struct orion_stream_record;
struct orion_stop;

struct orion_work {
    struct orion_stream_name stream;
    struct orion_launch launch;
    bool movable;      /* the wrapper launches on `elsewhere` if the core has set it */
    uint64_t identity; /* of identity.h: work of one identity takes about the same time; 0: takes no GPU time
                                 (an event record, a wait, a host function): ordered work that is neither gated nor
                                 counted in the window */
    /* The core's own, set by orion_work_begin. */
    struct orion_stream_record *stream_record; /* NULL: not managed, or being captured */
    uint64_t expected_ns;
    uint32_t flags;
    uint32_t collective;           /* its number; 0: none. See collective.h */
    const struct orion_stop *stop; /* that claims it; NULL: its GPU's hp. See stop.h */
    CUstream elsewhere;            /* a stream of the hook's own, joined with `stream` before and after; see partition.h */
};

/* Before anybody reads work->identity; see ORION_IDENTITY_UNREAD. */
static inline void orion_work_identify(struct orion_process *process, struct orion_work *work)
{
    if (work->identity == ORION_IDENTITY_UNREAD) work->identity = orion_launch_identity(process, &work->launch);
}

#endif
