/* What the parker of a process knows. Only this folder includes the file. */
#ifndef ORION_PARKING_STATE_H
#define ORION_PARKING_STATE_H

#include <stdatomic.h>
#include <stdint.h>

#include "process/process.h"

struct orion_parking {
    _Atomic uint32_t thread;               /* the parker's thread id; 0: it has not begun */
    _Atomic uint32_t opened;               /* 1: the parker keeps all stops open */
    _Atomic uint32_t away;                 /* 1: the process has left, and the parker knows */
    _Atomic uint32_t ends;                 /* 1: the process exits */
    _Atomic uint32_t answered[ORION_GPUS]; /* by GPU: the wish that was answered last */
};
ORION_PART(parking)

#endif
