/* The steps of leaving the GPU's memory and of coming back. Only the parker's thread calls these (parking.h). */
#ifndef ORION_PARKING_STEPS_H
#define ORION_PARKING_STEPS_H

#include <cuda.h>
#include <stdbool.h>

#include "orion/pages.h"

struct orion_process;

struct orion_parking_outcome {
    enum orion_parking_reason reason; /* NONE: it went well */
    CUresult result;                  /* what the driver said, if that is the reason */
};

/* Why this process cannot leave, as far as it is known beforehand. Some of these would fail only when it comes back. */
enum orion_parking_reason orion_parking_refusal(struct orion_process *process);

/* Leaves. `stops` says whether to stop half way, as when the agent has changed its mind; then *stopped. If the process has not
 * left, everything is as before. */
struct orion_parking_outcome orion_parking_leave(struct orion_process *process, bool (*stops)(struct orion_process *),
                                                 bool *stopped);

/* Comes back. If that fails, the process is lost. */
struct orion_parking_outcome orion_parking_return(struct orion_process *process);

/* After the end of an earlier parker's thread: whether the process is away. A process that is only locked is unlocked. */
bool orion_parking_is_away(struct orion_process *process);

#endif
